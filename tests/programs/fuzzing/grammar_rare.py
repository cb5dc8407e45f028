"""The templates of random programs for what Python programs use now and then: metaclasses, views of dicts, groups of
exceptions, warnings, threads, context variables, other modules' globals. `grammar.py` says what the kinds are.
"""
# ruff: noqa: E501 - a template is one line

from __future__ import annotations

from .grammar import Statement

RARE_EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "Both(<T>, <N>).step(<T>)", "rung(<T>)", "rung(<T>, <C>)", "Both(<T>).triple(<T>)", "Proxy(<O>).step(<T>)", "Proxy(<T>).sin()", "remembered(<N> % 3) * <T>", "kept_tensor(<N> % 3) + <T>",
        "Once().shifted(<T>)", "elsewhere.moved(<T>)", "elsewhere.moved(<T>, by=<N>)", "elsewhere.OFFSET * <T>", "even_steps(<T>, <N> % 5)", "[lambda a: a + j for j in range(3)][<N> % 3](<T>)",
        "[lambda a, j=j: a + j for j in range(3)][<N> % 3](<T>)", "positional(<T>, <N>, c=<N>)", "positional(<T>, a=<N>)", "in_thread(<C>, <T>)", "collections.ChainMap({'a': <T>}, <DT>)['a']",
        "collections.defaultdict(lambda: <T>)['zz']", "types.MappingProxyType({'a': <T>})['a']", "collections.OrderedDict(a=<T>, b=<T>).popitem(last=<B>)[1]", "collections.deque([<T>, <T>], maxlen=2)[<N> % 2]",
        "CONTEXT.get() * <T>", "copy.deepcopy(<O>).t", "drive(async_total(<T>, <N>))", "next(walk(<T>, 2))", "sum(walk(<T>, 2))", "entered(managed(<T>))", "Timed(<S>)(plain)(<T>)",
        "next(thrown(handling(<T>)))", "thrown(handling(<T>)).send(None)",
        "next(iter({<S>: <T>}.items()))[1]", "(lambda a, /, *, b: a * b)(<T>, b=<N>)", "functools.partial(positional, c=<N>)(<T>, **<DN>)", "asyncio.run(waiting(<T>))",
    ],
    "N": [
        "Described(<N>).size", "DESCRIBED.size", "DESCRIBED.grown", "Described(<N>).grow(<N>).grown", "Extent(<N>).unit(<N>).m", "Extent.square(<N>).n", "Extent(<N>).square(<N>).m", "(Extent(<N>) + Extent(<N>)).n", "len(Extent(<N>) + Extent(1))",
        "len(<DN>.keys() & {'a', 'q'})", "<Q>.count(2)", "len(Vector(<LN>)[1:])", "divmod(Vector(<LN>), 2)[1][0] if <LN> else 0", "Vector(<LN>) @ Vector(<LN>)", "sum(3 * Vector(<LN>))", "len(Family)", "len(Family.members)",
        "slice(<N>, None, 2).indices(7)[0]", "range(3, 30, 4)[<N> % 5]", "len(range(<N> % 9)[1:])", "range(0, 12, 3).count(<N>)", "len(list(collections.Counter(<LN>).elements()))", "sum(iter(itertools.count(<N> % 3).__next__, 5))",
        "rung(<N>)", "remembered(<N> % 3)", "Both(x).squared(<N> % 3)", "Movie(size=<N>, name=<S>)['size']", "Movie(name=<S>).get('year', <N>)", "math.prod(<LN>) % 11", "math.gcd(<N>, 12)",
        "operator.length_hint(iter(<LN>))", "CONTEXT.get()", "elsewhere.COUNT", "elsewhere.bump(<N>)", "elsewhere.STATE['n']", "len(elsewhere.PARTS)", "Once().count", "(collections.Counter(<LN>) - collections.Counter(<LN>)).total()",
        "collections.Counter(<LN>)[<N>]", "next(reversed({'a': 1, 'b': <N>}.values()))", "int.from_bytes(<S>.encode()[:2], 'big')", "dict(a=<N>).pop('a', 1)", "collections.UserDict(a=<N>)['a']", "in_thread(bump, 1)", "[*map(max, <LN>, [1])].count(1)",
    ],
    "B": [
        "id(<LT.var>) == id(<LT.var>)", "id(<T.var>) == id(<T.var>)", "isinstance(<O>, Family)", "1 in Family", "<DN>.keys() >= {'a'}", "<DN>.items() == <DN>.items()", "isinstance(<A>, int | str)", "isinstance(<O>, Steppable)",
        "<N> in Vector(<LN>)", "slice(1, <N>) == slice(1, 2)", "range(<N> % 3) == range(0)", "collections.Counter(<S>) == collections.Counter(<S>)", "<Q> == <Q>", "Once() is Once()", "type(<O>) is type(<O>)", "<SN>.isdisjoint(<LN>)",
        "hasattr(<A>, '__iter__')", "Vector(<LN>) <= Vector(<LN>)", "Vector(<LN>) == Vector(<LN>)", "'x' in locals()", "<DN>.keys().isdisjoint(<DN>)", "isinstance(<A>, typing.Sized)", "remembered(1) is remembered(1)", "kept_tensor(1) is kept_tensor(1)",
        "isinstance(<A>, collections.abc.Hashable)", "threading.current_thread() is threading.main_thread()", "in_thread(torch.is_grad_enabled)",
    ],
    "S": [
        "str(list(<DN>.items()))", "repr(collections.Counter(<LN>) + collections.Counter(<LN>))", "repr(collections.OrderedDict(a=<N>))", "repr(collections.defaultdict(int, a=<N>))", "repr(<Q>)", "repr(slice(<N>, None))", "repr(range(<N>))",
        "f'{<N.var>:>+6,}'", "<S>.translate(str.maketrans('ab', 'xy'))", "<S>.encode().hex()", "string.Template('$a b').substitute(a=<N>)", "'%(a)s|%(b)05.1f' % {'a': <S>, 'b': <F>}", "'{0!r:>8}|{1[0]}|{2.count}'.format(<S>, [<N>], <O>)",
        "Both.__mro__[<N> % 4].__name__", "Both(x).told(<A>)", "Family[<N>]", "ascii(<S>)", "<S>.casefold().swapcase()", "str(sorted(Movie.__annotations__))", "type(Proxy(<O>)).__name__", "repr(<DN>.keys())", "str(dict(Movie(size=<N>)))",
        "repr(ExceptionGroup('g', [ValueError(<N>)]))", "str(types.SimpleNamespace(n=<N>))", "threading.current_thread().name", "elsewhere.moved.__module__ or 'none'",
    ],
    "LN": [
        "sorted(<DN>.values())", "list(reversed(<DN>.values()))", "[*collections.deque(<LN>, maxlen=2)]", "list(collections.Counter(<LN>).elements())", "list(Vector(<LN>))", "(Vector(<LN>) * 2).items", "list(range(10))[slice(1, <N>, 2)]",
        "[a + b for a, b in itertools.pairwise(<LN>)]", "[a * b % 100 for a, b in itertools.product(<LN>[:2], [1, 2])]", "list(map(max, <LN>, <LN>))", "list(itertools.chain.from_iterable([<LN>, <LN>]))", "sorted(<LN>, key=remembered)",
        "[g() for g in [lambda: j for j in <LN>]]", "list(collections.UserList(<LN>))", "list(map(operator.add, <LN>, <LN>))", "list(reversed(Vector(<LN>)))", "elsewhere.PARTS", "[len(list(c)) for c in itertools.combinations(<LN>[:3], 2)]", "(~Vector(<LN>)).items",
    ],
    "DN": ["collections.ChainMap({'a': <N>}, <DN>).maps[1]", "Movie(size=<N>)", "dict(collections.Counter(<S>).most_common(2))", "elsewhere.STATE", "{**types.MappingProxyType(<DN>)}", "dict(reversed(<DN>.items()))", "dict.fromkeys(sorted(<DN>.keys() - {'a'}), <N>)"],
    "O": ["Both(<T>, <N>)", "Left(<T>)", "copy.copy(Both(<T>))"],
    "C": ["Timed('c')(plain)", "Proxy(<C>)", "elsewhere.moved", "functools.lru_cache(lambda a: a)", "Both(<T>).triple", "functools.partial(in_thread, torch.sin)", "functools.partial(functools.partial(plain, n=<N>), flag=<B>)"],
    "G": ["walk(<T>, <N> % 3)", "(t for pair in zip(<LT>, <LT>) for t in pair)", "itertools.tee(<G>)[1]", "iter({'a': <T>, 'b': <T>}.values())", "itertools.chain.from_iterable([<LT>, <LT>])"],
    "I": ["<DN>.values()", "range(9)[<N> % 4:<N>]", "iter(collections.deque(<LN>))", "Vector(<LN>)", "collections.Counter(<LN>).values()", "iter(<LN>.copy().__len__, 0) and [2]", "map(operator.add, <LN>, <I>)", "zip(<LN>) and <LN>"],
    "M": ["Timed('m')", "Vector([1])", "contextlib.redirect_stdout(io.StringIO())", "contextlib.ExitStack()", "contextlib.closing(closing(<T>, 1))", "LOCK", "warnings.catch_warnings()"],
    "A": ["Vector(<LN>)", "Movie(size=<N>)", "{'name': <S>}", "Mask.A | Mask.B", "slice(<N>)", "1j", "<DN>.keys()", "Family", "..."],
}  # fmt: skip

_SIMPLE = r"""
warned(<S>)
rung(<T>, 'refused')
rung(<T>, <C>)
warned('old', DeprecationWarning)
warnings.warn(f'warned: {<N.var>}')
LOGGER.warning('at %s', <N>)
CONTEXT.set(<N>)
elsewhere.COUNT += 1
elsewhere.OFFSET = <N> % 4
elsewhere.STATE[<S>] = <N>
elsewhere.PARTS.append(<N>)
elsewhere.bump(<N>)
DESCRIBED.size = <N>
DESCRIBED.size += <N>
del DESCRIBED.size
DESCRIBED.grow(<N>)
LOG.append((vars(DESCRIBED), Extent.unit(<N>)))
thrown(handling(<T>))
<Z.new> = handling(<T>)\nthrown($Z)\n$Z.close()\nLOG.append('closed')
<Z.new> = handling(<T>)\nnext($Z)\nwith contextlib.suppress(KeyError): $Z.throw(KeyError(<S>))
from elsewhere import moved\n<T.new> = moved(<T>)
import elsewhere as again\nagain.COUNT += 2
in_thread(LOG.append, <N>)
globals()['COUNT'] += 1
LOG.append(<LN.own>)
TABLE['kept'] = <LN.own>
TABLE['tensor'] = <T.own>
same = [<LN.own>] * 2\nsame[0].append(<N>)\nLOG.append(same)
<DN.new> = dict(<DN>)\nLOG.append($DN.popitem() if $DN else 0)
<DN.new> = dict(<DN>)\nkeys = $DN.keys()\n$DN['new'] = <N>\nLOG.append(list(keys))
items = <DN.own>.items()\n<DN.own>['q'] = <N>\nLOG.append(len(items))
<Q.new> = collections.deque(<Q>)\n$Q.extendleft(<LN>)\n$Q.rotate(<N>)\nLOG.append($Q.popleft() if $Q else None)
<Q.own>.extend(<LN>)\nLOG.append(<Q.own>)
counts = collections.Counter(<S>)\ncounts.update(<S>)\ncounts.subtract({'a': <N>})\nLOG.append(sorted(counts.items()))
ordered = collections.OrderedDict(sorted(<DN>.items()))\nordered['z'] = <N>\nordered.move_to_end('z', last=<B>)\nLOG.append(list(ordered))
found = set(<SN>)\nfound.add(<N>)\nfound.discard(1)\nfound |= {2}\nLOG.append(sorted(found))
<SN.new> = <SN>\nwide = $SN\nwide |= {<N>}\nLOG.append(len($SN))
vector = Vector(<LN>)\nvector *= <N>\nvector[:1] = [<N>]\nLOG.append(vector)
Proxy(<O.own>).count = <N>
movie = Movie(size=<N>)\nmovie['year'] = <N>\nLOG.append(movie)
remembered.cache_clear()
kept_tensor(<N> % 3).add_(1)
<T.new> = <T>\nLOG.append(id($T) == id(<T.var>))
functions = []\nfor <N.new> in <I>: functions.append(lambda: $N)\nLOG.append([g() for g in functions])
class Member(Family, tag=<S>): count = <N>\nLOG.append((Member.tag, Member.prepared, len(Member)))
class Kind(enum.Enum): A = <N>; B = 's'\nLOG.append(Kind.B.value)
del LOG[:1]
LOG[:] = LOG[-3:]
vars(<O.own>)['count'] = <N>
x.tagged = <A>
""".strip().split("\n")

_COMPOUND: list[tuple[str, float]] = [
    ("with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    warned('unheard')\n    <BODY>", 0.5),
    ("with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n    warned(<S>)\n    <BODY>\nLOG.append(sum(str(w.message).startswith('warned') for w in caught))", 0.5),
    ("with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    try:\n        warned(<S>)\n    except UserWarning as error:\n        LOG.append(str(error))\n        <BODY>", 0.5),
    ("try:\n    try:\n        raise Boom(<N>)\n    except Boom as error:\n        error.__context__ = error\n        <BODY>\n        raise ValueError(<S>)\nexcept ValueError as error:\n    LOG.append(type(error.__context__).__name__)", 0.5),
    ("error = ValueError(<S>)\nerror.__cause__ = None\nLOG.append(error.__suppress_context__)\n<BODY>", 0.3),
    ("token = CONTEXT.set(<N>)\n<BODY>\nCONTEXT.reset(token)", 0.5),
    ("with contextlib.redirect_stdout(io.StringIO()) as out:\n    print('kept', <N>)\n    <BODY>\nLOG.append(out.getvalue())", 0.5),
    ("with contextlib.ExitStack() as stack:\n    stack.callback(LOG.append, <N>)\n    <T.new> = stack.enter_context(managed(<T>))\n    <BODY>", 1),
    ("with contextlib.closing(closing(<T>, 2)) as <Z.new>:\n    <T.new> = next($Z)\n    <BODY>", 0.5),
    ("with LOCK:\n    <BODY>", 0.5),
    ("with Vector(<LN>) as vector:\n    <BODY>\nLOG.append(vector.items)", 0.5),
    ("@Timed(<S>)\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 0.5),
    ("def <C.new>(a, /, b=<N>, *, c=<N>):\n    <FUNCTION T a:T,b:N,c:N>\n<T.new> = $C(<T>, c=<N>)", 1),
    ("def <C.new>(a):\n    try:\n        <FUNCTION T a:T>\n    finally:\n        LOG.append('leaving')\n<T.new> = $C(<T>)", 1),
    ("def <C.new>(a):\n    for i in range(3):\n        try:\n            if i == <N> % 4: return a\n        finally:\n            LOG.append(i)\n    return a * 2\n<T.new> = $C(<T>)\n<BODY>", 0.5),
    ("def <C.new>(a):\n    b = a\n    del b\n    try:\n        return b\n    except UnboundLocalError:\n        return a + 1\n<T.new> = $C(<T>)\n<BODY>", 0.3),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = in_thread($C, <T>)", 0.5),
    ("@functools.lru_cache(maxsize=2)\ndef <Y.new>(q):\n    LOG.append(q)\n    return q * 2\n<N.new> = $Y(<N> % 2) + $Y(1)\n<BODY>\n<N.new> = $Y(1) + $Y.cache_info().hits", 1),
    ("try:\n    try:\n        raise Boom(<N>)\n    except Boom:\n        <BODY>\n        raise ValueError(<S>) from None\nexcept ValueError as error:\n    LOG.append((error.__cause__, repr(error.__context__), error.__suppress_context__))", 1),
    ("try:\n    try:\n        failing(<T>, <N>)\n    except Exception as error:\n        error.add_note(<S>)\n        <BODY>\n        raise\nexcept (ValueError, Boom) as again:\n    LOG.append(again.__notes__)", 1),
    ("try:\n    raise ExceptionGroup('g', [ValueError(<N>), ExceptionGroup('h', [Boom(<N>), KeyError(<S>)])])\nexcept* (KeyError, Boom) as group:\n    LOG.append(str(group))\n    <BODY>\nexcept* ValueError as group:\n    LOG.append(group.exceptions[0].args)", 0.7),
    ("try:\n    failing(<T>, <N>)\nexcept* ValueError as group:\n    LOG.append(repr(group))\n    <BODY>\nexcept* Boom as group:\n    <BODY>\nelse:\n    <BODY>", 0.7),
    ("try:\n    for key in <DN.var>:\n        <DN.own>['grown' + key] = <N>\nexcept RuntimeError as error:\n    LOG.append(str(error))\n    <BODY>", 0.7),
    ("groups = collections.defaultdict(list)\nfor <N.new> in <I>:\n    groups[$N % 2].append($N)\n    <BODY>\nLOG.append(dict(groups))", 1),
    ("class Local(metaclass=Meta, tag=<S>):\n    def run(self, a):\n        <FUNCTION T a:T>\n<T.new> = Local().run(<T>)\nLOG.append((Local.tag, len(Local)))", 0.5),
    ("class Local(typing.NamedTuple):\n    t: object\n    n: int = 2\n    def run(self, a):\n        return a * self.n + self.t\n<T.new> = Local(<T>)._replace(n=<N>).run(<T>)\n<BODY>", 0.5),
    ("match tuple(<T>.shape):\n    case (2, columns) if columns > <N>:\n        <BODY>\n    case [_, _]:\n        <BODY>", 0.7),
    ("match {'a': <N>, **<DN>}:\n    case {'a': 1 | 2, **rest}:\n        LOG.append(rest)\n        <BODY>\n    case {'a': int(first), 'b': _} if first:\n        <BODY>\n    case _:\n        <BODY>", 0.7),
    ("match Vector(<LN>):\n    case Vector([]):\n        <BODY>\n    case Vector([first, *_]):\n        LOG.append(first)\n        <BODY>", 0.7),
    ("for <S.new>, <N.new> in (<DN> | {'end': 1}).items():\n    <BODY>\nelse:\n    LOG.append($S)", 0.7),
    ("<Z.new> = walk(<T>, 2)\nfor <T.new> in $Z:\n    <BODY>\n    break\nLOG.append(len(list($Z)))", 0.7),
]  # fmt: skip

RARE_STATEMENTS: list[Statement] = [
    *(Statement(text.replace(r"\n", "\n")) for text in _SIMPLE),
    *(Statement(text, 1.5 * weight) for text, weight in _COMPOUND),
]
