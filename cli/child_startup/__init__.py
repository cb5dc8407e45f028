"""A folder on PYTHONPATH of the processes below `ptdebug run`: Python imports its `sitecustomize` when it starts."""
