"""What two values, and two runs, are to each other: equal, apart by rounding, or different, and why."""
