"""The main screen: the tree, an artifact, and beside it the lines of another stage that are linked to its line."""
from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from ..artifacts.listing import Line, Listing, printable, source_path
from ..artifacts.process_liveness import is_running
from ..artifacts.recording import Recording, RecordingError
from ..artifacts.records import Ref, split_ref
from . import screens
from .answers.questions import QUESTIONS
from .code_view import CodeView
from .editor import edit
from .key_bar import KeyBar
from .line_view import LineView
from .outline import OTHERS
from .outline_view import OutlineView
from .plain import TextLine, plain
from .session import FORMS_OF, SOURCE, Session, Target, short_name

PREVIEW_AFTER = 0.06  # seconds that the tree's cursor rests before its artifact is shown
LINKS_AFTER = 0.03  # seconds until the links of a compilation are read
READING = Listing("reading", "text", (Line("reading the recording ..."),))
LARGE = Listing("large", "text", (Line("too large to be read in passing: choose it in the tree"),))
FOLLOW_EVERY = 0.5  # seconds
PANES = ("outline", "main", "linked")
ASK = f"questions  {'  '.join(f'{q.key} {q.id}' for q in sorted(QUESTIONS, key=lambda q: q.key))}"


class PanesScreen(Screen[None]):
    """Shows `session`; where it opens is `target`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-medium"), (140, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "pane(1)", "pane", id="pane.next", tooltip="next pane"),
        Binding("shift+tab", "pane(-1)", "pane back", show=False, id="pane.previous", tooltip="previous pane"),
        Binding("slash", "find", "find", key_display="/", id="find", tooltip="search in this artifact"),
        Binding("n", "match(1)", "next", show=False, id="find.next", tooltip="next match"),
        Binding("N", "match(-1)", "previous", show=False, id="find.previous", tooltip="previous match"),
        Binding("s", "search", "search", id="search", tooltip="search in every artifact"),
        Binding("t", "linked_stage(1)", "link", id="linked.next",
                tooltip="show this line's counterpart in the next stage"),
        Binding("T", "linked_stage(-1)", "linked stage back", show=False, id="linked.previous",
                tooltip="show this line's counterpart in the previous stage"),
        *(Binding(q.key, f"ask('{q.id}')", "ask", key_display="0-9", show=q is QUESTIONS[0], id=f"ask.{q.id}",
                  tooltip=q.title) for q in QUESTIONS),
        Binding("f", "follow", "follow", show=False, id="follow",
                tooltip="go to the linked lines: the panes change places"),
        Binding("right_square_bracket", "stage(1)", "stage", key_display="]", show=False, id="stage.next",
                tooltip="next stage of this compilation"),
        Binding("left_square_bracket", "stage(-1)", "stage", key_display="[", show=False, id="stage.previous",
                tooltip="previous stage of this compilation"),
        Binding("right_curly_bracket", "compile(1)", "compile", key_display="}", show=False, id="compile.next",
                tooltip="the same stage of the next compilation"),
        Binding("left_curly_bracket", "compile(-1)", "compile", key_display="{", show=False, id="compile.previous",
                tooltip="the same stage of the previous compilation"),
        Binding("d", "diff", "diff", show=False, id="diff",
                tooltip="mark this; on something else: what differs from the marked"),
        Binding("x", "act", "act", id="act", tooltip="replay, bisect, minify, export a repro of this compilation"),
        Binding("e", "edit", "edit", show=False, id="edit", tooltip="open this line of the program in $EDITOR"),
        Binding("b", "breaks", "breaks", id="breaks", tooltip="the graph breaks in the source text"),
        Binding("y", "copy_command", "copy", id="copy", tooltip="copy the command that shows this"),
        Binding("r", "reload", "reload", show=False, id="reload", tooltip="read the recording again"),
        Binding("backspace", "back", "back", show=False, id="back", tooltip="what was shown before"),
        Binding("escape", "leave", "leave", show=False, id="leave", tooltip="end the search; back to the tree"),
    ]

    def __init__(self, session: Session, target: Target, follow: bool = False) -> None:
        super().__init__(classes="show-main" if target.stage else "show-outline")
        self.session = session
        self.target = Target()
        self._first = target
        self._wanted: int | Ref | None = None  # the row of `target`, while that is being read
        self._linked_stage = ""
        self._linked_target = Target()
        self._history: list[tuple[Target, int]] = []
        self._follow = self._runs = follow
        self._stamp: tuple[float, ...] = ()
        self._linked_compiles: set[str] = set()  # whose links are there
        self._being_read: set[tuple[Session, Target]] = set()
        self._preview: Timer | None = None
        self._linking: Timer | None = None
        self._marked: tuple[Session, Target] | None = None  # for the difference

    def compose(self) -> ComposeResult:
        """Title, panes, the search's input, the command of what is shown, the keys."""
        yield TextLine(id="title")
        yield TextLine(id="tabs")
        with Container(id="panes"):
            yield OutlineView(id="outline")
            with Container(id="content"):
                yield CodeView(id="main")
                yield CodeView(id="linked")
        yield Input(placeholder="find in this artifact (enter; esc closes; n and N: next, previous)", id="find")
        yield TextLine(id="chain")
        yield TextLine(id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        """Fill the panes."""
        self._fill()
        self.show_target(self._first)
        self.query_one("#outline", OutlineView).reveal(self._first)
        self._pane("main" if self._first.stage else "outline")
        self.call_after_refresh(self._load_screens)
        if self._follow:
            self._stamp = self.session.stamp()
            self.set_interval(FOLLOW_EVERY, self._grown)

    @work(thread=True, exit_on_error=False)
    def _load_screens(self) -> None:
        screens.load()

    # ---- what is shown ----------------------------------------------------------------------------------------------
    def show_target(self, target: Target, row: int | Ref | None = None, remember: bool = True) -> None:
        """Show an artifact in the main pane with the cursor on `row`, or on the row of an item (None: where it begins
        to matter)."""
        main = self.query_one("#main", CodeView)
        if remember and self.target != target:
            self._history.append((self.target, main.cursor))
        self.target, self._wanted = target, row
        if self.session.is_cheap(target):
            listing = self.session.listing(target)
            main.show(listing, self.session.row_of(target, row))
        else:
            listing = READING
            main.show(listing)
            self._load_listing(self.session, target)
        main.border_title = plain(short_name(target))
        main.border_subtitle = f"{len(listing.lines)} lines"
        if self._linked_stage not in self.session.linkable(self.target):
            self._linked_stage = self.session.beside(self.target)
        self._tabs()
        self._sync()

    def _show_and_reveal(self, target: Target, row: int | Ref | None = None, remember: bool = True) -> None:
        self.show_target(target, row, remember)
        self.query_one("#outline", OutlineView).reveal(target)

    def _fill(self) -> None:
        self._title()
        self.query_one("#outline", OutlineView).show(self.session)
        self.query_one("#outline", OutlineView).border_title = "recording"

    def _title(self) -> None:
        statuses = Counter(info.status for info in self.session.compiles)
        counts = [f"{statuses['compiled']} compiled"]
        counts += [f"{statuses[one]} {one}" for one in ("eager", "failed", "running", "unknown", "skipped")
                   if statuses[one]]
        broken = len(self.session.breaks) if not self.session.is_large else sum(self.session.breaks_in.values())
        counts += [f"{broken} graph break{'s' if broken > 1 else ''} (b)"] if broken else []
        again = len(self.session.recompiled)
        counts += [f"{again} recompilation{'s' if again > 1 else ''} (1)"] if again else []
        counts += ["raised an exception (0)"] if self.session.recording.meta.get("exception") else []
        problems = self.session.recording.problems
        counts += [f"DAMAGED: {problems[0]}"] if problems else []
        following = f" ({self.session.state()})" if self._follow else ""
        name = f"{self.session.recording.name}{following}"
        self.query_one("#title", TextLine).say(f"ptdebug  {name}  {', '.join(counts)}")

    def _chain(self) -> None:
        """The breadcrumb of the main pane's line; the stage that is shown stands in brackets."""
        known = self.target.compile in self._linked_compiles
        text = self.session.breadcrumb(self.target, self.query_one("#main", CodeView).line, known)
        self.query_one("#chain", TextLine).say(text if self.target.stage else ASK)

    def _status(self, note: str = "") -> None:
        line = self.query_one("#main", CodeView).cursor + 1 if self.target.stage else None
        command = self.session.command(self.target, line if line and line > 1 else None)
        self.query_one("#status", TextLine).say(f"{note}  |  {command}" if note else f"$ {command}")

    def _grown(self) -> None:
        """Follow a program that runs: show what was recorded since, and stay where the person is."""
        if self._runs and not is_running(self.session.recording.meta):  # a killed program changes no file
            self._runs = False
            self._title()
        stamp = self.session.stamp()
        if stamp == self._stamp or self.app.screen is not self:
            return
        self._stamp = stamp
        main, outline = self.query_one("#main", CodeView), self.query_one("#outline", OutlineView)
        row, focused = main.cursor, self.focused
        self.session = Session(self.session.recording)
        self._linked_compiles.clear()
        self._title()
        outline.grow(self.session)
        self.show_target(self.target, row, remember=False)
        if focused is not None:
            focused.focus()

    # ---- the linked pane --------------------------------------------------------------------------------------------
    def _sync(self) -> None:
        """Show in the linked pane what the main pane's line belongs to."""
        self._status()
        self._chain()
        linked = self.query_one("#linked", CodeView)
        linked.set_class(not self._linked_stage, "empty")
        if not self._linked_stage:
            linked.show(self.session.listing(Target()) if self.session.is_cheap(Target()) else READING)
            linked.border_title = "summary"
            return
        if self._linking is not None:
            self._linking.stop()
        if self.target.compile not in self._linked_compiles:  # what is known is drawn first
            self._linking = self.set_timer(LINKS_AFTER, partial(self._load_links, self.session, self.target.compile))
            return
        self._show_linked(self._belonging(self._linked_stage))

    def _belonging(self, stage: str) -> list[Ref]:
        """The items of `stage` that belong to the main pane's line; none while the links are being read."""
        line = self.query_one("#main", CodeView).line
        if line is None or self.target.compile not in self._linked_compiles:
            return []
        items = [item for item in (line.ref, *line.origins) if item]
        return next((found for item in items if (found := self.session.related(self.target.compile, item, stage))), [])

    def _show_linked(self, found: list[Ref]) -> None:
        linked = self.query_one("#linked", CodeView)
        stage = self._linked_stage
        if found:
            name = split_ref(found[0])[1]
            name = source_path(name) if stage == SOURCE else name
            target = Target(self.target.compile, FORMS_OF.get(stage, stage), name)
        elif self._linked_target.compile == self.target.compile and self._linked_target.stage == stage:
            target = self._linked_target
        else:
            target = self.session.first_of(self.target.compile, stage)
        self._linked_target = target
        self._tabs()
        if not self.session.is_cheap(target):
            linked.border_title = plain(short_name(target))
            linked.show(READING if found else LARGE)
            if found:
                self._load_listing(self.session, target)
            return
        listing = self.session.listing(target)
        rows = sorted({row for item in found for row in listing.rows_of.get(item, ())})
        linked.show(listing, rows[0] if rows else self.session.first_row(target), rows)
        linked.border_title = plain(short_name(target))
        lines = f"{len(rows)} line{'s' if len(rows) != 1 else ''} (=) of this line" if rows else "no linked lines"
        linked.border_subtitle = f"{lines}; t: other stage"

    @work(thread=True, exclusive=True, group="listing", exit_on_error=False)
    def _load_listing(self, session: Session, target: Target) -> None:
        if (session, target) not in self._being_read:
            self._being_read.add((session, target))
            session.listing(target)
            self._being_read.discard((session, target))
            self.app.call_from_thread(self._listing_loaded, session, target)

    def _listing_loaded(self, session: Session, target: Target) -> None:
        if session is not self.session:
            return
        if target == self.target:
            self.show_target(target, self._wanted, remember=False)
        elif target == self._linked_target:
            self._sync()

    @work(thread=True, group="links", exit_on_error=False)
    def _load_links(self, session: Session, compile_id: str) -> None:
        session.links(compile_id)
        self.app.call_from_thread(self._links_loaded, session, compile_id)

    def _links_loaded(self, session: Session, compile_id: str) -> None:
        if session is self.session:
            self._linked_compiles.add(compile_id)
            self._sync()

    # ---- messages ---------------------------------------------------------------------------------------------------
    @on(LineView.Moved, "#main")
    def _main_moved(self) -> None:
        self._sync()

    @on(LineView.Moved, "#outline")
    def _outline_moved(self) -> None:
        if self._preview is not None:
            self._preview.stop()
        self._preview = self.set_timer(PREVIEW_AFTER, self._show_preview)

    def _show_preview(self) -> None:
        outline = self.query_one("#outline", OutlineView)
        row = outline.rows[outline.cursor]
        if row.target is not None and row.target != self.target and self.focused is outline:
            if self.session.is_cheap(row.target) or not row.target.compile:
                self.show_target(row.target)
            else:  # in passing, nothing large is read
                self._status(f"{row.label}: {row.detail}; enter opens it")

    @on(LineView.Chosen, "#outline")
    def _outline_chosen(self, message: LineView.Chosen) -> None:
        outline = self.query_one("#outline", OutlineView)
        row = outline.rows[message.row]
        if row.open_path is not None:
            self._open(row.open_path)
        elif row.key == "breaks":
            self.action_breaks()
        elif row.key.startswith("ask "):
            self.action_ask(row.key.removeprefix("ask "))
        elif row.branch:
            outline.toggle()
            if row.target is not None:
                self.show_target(row.target)
            elif row.key == OTHERS and outline.row_count == message.row + 1:
                self.notify("there are no other recordings here")
        elif row.target is not None:
            self.show_target(row.target)
            self._pane("main")

    @on(LineView.Chosen, "#main")
    @on(LineView.Chosen, "#linked")
    def _code_chosen(self) -> None:
        line = self.query_one("#main", CodeView).line
        opens = self.session.opens(line) if line is not None and not self.target.stage else None
        if opens is None:
            self.action_follow()
        else:
            self.go_to(opens)

    @on(Input.Submitted, "#find")
    def _find_submitted(self, message: Input.Submitted) -> None:
        message.input.remove_class("shown")
        main = self.query_one("#main", CodeView)
        self._pane("main")
        count = main.find(message.value)
        self._status(main.next_match(1) if count else f"no line contains {message.value}")

    # ---- actions ----------------------------------------------------------------------------------------------------
    def action_pane(self, step: int) -> None:
        """The next pane that there is."""
        focused = self.focused.id if self.focused is not None and self.focused.id in PANES else "outline"
        self._pane(PANES[(PANES.index(str(focused)) + step) % len(PANES)])

    def _pane(self, name: str) -> None:
        for pane in PANES:
            self.set_class(pane == name, f"show-{pane}")
        self._tabs()
        self.query_one(f"#{name}").focus()

    def _tabs(self) -> None:
        """In a narrow terminal, which of the panes is shown."""
        linked = short_name(self._linked_target) if self._linked_stage else "linked lines"
        names = {"outline": "tree", "main": short_name(self.target), "linked": linked}
        tabs = "  ".join(f"[{text}]" if self.has_class(f"show-{pane}") else f" {text} " for pane, text in names.items())
        self.query_one("#tabs", TextLine).say(f"{tabs}   (tab)")

    def action_find(self) -> None:
        """Ask for the text to search in the main pane."""
        field = self.query_one("#find", Input)
        field.add_class("shown")
        field.value = self.query_one("#main", CodeView).query_text
        field.focus()

    def action_match(self, step: int) -> None:
        """The next or previous match."""
        self._status(self.query_one("#main", CodeView).next_match(step))

    def action_leave(self) -> None:
        """Close the input, else end the search, else go back to the tree."""
        field, main = self.query_one("#find", Input), self.query_one("#main", CodeView)
        if field.has_class("shown"):
            field.remove_class("shown")
            self._pane("main")
        elif main.query_text:
            main.find("")
            self._status()
        else:
            self._pane("outline")

    def action_linked_stage(self, step: int) -> None:
        """Another stage in the linked pane: the next that has something for this line, where there is one."""
        choices = self.session.linkable(self.target)
        if not choices:
            self.notify("open an artifact of a compilation first")
            return
        index = choices.index(self._linked_stage) if self._linked_stage in choices else -step
        order = [choices[(index + step * (i + 1)) % len(choices)] for i in range(len(choices))]
        self._linked_stage = next((stage for stage in order if self._belonging(stage)), order[0])
        self._sync()

    def action_follow(self) -> None:
        """Go to the linked lines: the linked artifact comes into the main pane, this one becomes the linked one."""
        if not self._linked_stage or not self._linked_target.stage:
            return
        before = self.target.stage
        row = self.query_one("#linked", CodeView).cursor
        self._linked_stage = before
        self.go_to((self._linked_target, row))

    def action_stage(self, step: int) -> None:
        """The next stage of this compilation."""
        stages = self.session.stages(self.target.compile) if self.target.compile else []
        if not stages:
            self.notify("choose a compilation first")
            return
        index = stages.index(self.target.stage) if self.target.stage in stages else (-1 if step > 0 else 0)
        self._go_to(self.target.compile, stages[(index + step) % len(stages)])

    def action_compile(self, step: int) -> None:
        """The same stage of the next compilation."""
        ids = [info.id for info in self.session.compiles]
        if not ids:
            return
        index = ids.index(self.target.compile) if self.target.compile in ids else (-1 if step > 0 else 0)
        compile_id = ids[(index + step) % len(ids)]
        stage = self.target.stage if self.target.stage in self.session.stages(compile_id) else ""
        self._go_to(compile_id, stage)

    def _go_to(self, compile_id: str, stage: str) -> None:
        names = self.session.names(compile_id, stage) if stage else [""]
        name = self.target.name if self.target.name in names else next(iter(names), "")
        self._show_and_reveal(Target(compile_id, stage, name))

    def action_back(self) -> None:
        """What was shown before."""
        if self._history:
            self._show_and_reveal(*self._history.pop(), remember=False)

    def action_breaks(self) -> None:
        """The graph breaks."""
        if self.session.breaks_in:
            self.app.push_screen(screens.breaks(self.session), self.go_to)
        else:
            self.notify("no graph breaks")

    def action_ask(self, question: str) -> None:
        """Answer a question about what is shown: this compilation, or all of them."""
        self.app.push_screen(screens.answer(self.session, question, self.target.compile), self.go_to)

    def go_to(self, opens: tuple[Target, int | Ref | None] | None) -> None:
        """Show a target, and a row or an item of it, in the main pane and in the tree."""
        if opens is not None:
            self._show_and_reveal(*opens)
            self._pane("main")

    def action_diff(self) -> None:
        """Mark what is shown; the second time, compare the marked with what is shown then."""
        if self._marked is None or (self._marked[1] == self.target and self._marked[0] is self.session):
            self._marked = (self.session, self.target)
            self._status("marked: d on another compilation, stage or recording compares them")
            return
        session, target = self._marked
        self._marked = None
        if bool(target.compile) == bool(self.target.compile):
            self.app.push_screen(screens.diff(session, target, self.session, self.target))
        else:
            self.notify("compare two compilations, two stages or two recordings")

    def action_act(self) -> None:
        """What can be done with this compilation."""
        self.app.push_screen(screens.act(self.session, self.target))

    def action_edit(self) -> None:
        """Open the program's line in the editor."""
        if (found := self.session.program_line(self.target, self.query_one("#main", CodeView).line)) is None:
            self.notify("no line of the program is known for this")
        elif problem := edit(self.app, *found):
            self.notify(problem, severity="error", markup=False)

    def action_search(self) -> None:
        """Search in everything."""
        self.app.push_screen(screens.search(self.session),
                             lambda match: self.go_to((match.target, match.row) if match else None))

    def action_copy_command(self) -> None:
        """Copy the command line that shows what is shown."""
        main = self.query_one("#main", CodeView)
        command = self.session.command(self.target, main.cursor + 1 if main.cursor else None)
        self.app.copy_to_clipboard(command)
        self._status("copied")

    def action_reload(self) -> None:
        """Read the recording again: it may have grown."""
        self._open(self.session.recording.path, self.target)

    def _open(self, path: Path, target: Target | None = None) -> None:
        try:
            recording = Recording.open(path)
        except RecordingError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return
        self.session.recording.close()
        self.session = Session(recording)
        self._linked_compiles.clear()
        self._history.clear()
        self._fill()
        known = {info.id for info in self.session.compiles}
        self.show_target(target if target and target.compile in known else Target(), remember=False)
