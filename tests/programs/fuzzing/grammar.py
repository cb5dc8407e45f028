"""The templates of random programs: expressions by kind, and statements. `generate.py` says what the holes mean.

Kinds: T a tensor of shape (2, 3), N an int, F a float, B a bool, S a str, LT and LN lists, DN and DT dicts by str, SN a
set of ints, Q a deque of ints, P a pair (tensor, int), O an object with `t`, `count`, `items`, `tags`, `step` and a
call, C a callable of a tensor, G an iterable of tensors, I an iterable of ints, M a context manager, A anything.
"""
# ruff: noqa: E501 - a template is one line

from __future__ import annotations

from dataclasses import dataclass

LEAVES: dict[str, list[str]] = {
    "T": ["x", "y", "torch.ones(2, 3)"],
    "N": ["0", "1", "2", "3", "-1", "5", "len(LOG)"],
    "F": ["0.5", "1.5", "-2.0", "math.pi"],
    "B": ["True", "False"],
    "S": ["'ab'", "'key'", "''", "'a,b,c'"],
    "LT": ["[x, y]", "[x]", "list((x, x + 1))"],
    "LN": ["[1, 2, 3]", "[3, 1, 2]", "[]", "[0] * 2"],
    "DN": ["{'a': 1, 'b': 2}", "dict(a=3, z=0)", "{}"],
    "DT": ["{'a': x, 'b': y}", "dict(a=x)"],
    "SN": ["{1, 2, 3}", "set()", "frozenset([1, 5])"],
    "Q": ["collections.deque([1, 2, 3])", "collections.deque([4, 5], maxlen=3)"],
    "P": ["(x, 1)", "(y, 0)"],
    "O": ["o", "Base(x, 2)", "Slotted(x)", "Record(y)"],
    "C": ["torch.sin", "plain", "(lambda a: a * 2)"],
    "G": ["iter([x, y])", "tensors(x, 2)"],
    "I": ["range(3)", "numbers(2)", "[2, 0, 1]"],
    "M": ["contextlib.nullcontext()", "Manager('leaf')"],
    "A": ["None", "1", "'ab'", "x", "[]"],
}

EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "<T> + <T>", "<T> * <N>", "<T> - <F>", "<N> - <T>", "-<T>", "<T>.sin()", "torch.relu(<T>)", "<T> * <T>",
        "torch.where(<T> > 0, <T>, <T>)", "<T>.clone()", "<T> + <T>.mean()", "<T>.view(-1).view(2, 3)",
        "<T>[:, [2, 0, 1]]", "<T>.t().reshape(2, 3)", "<T>.clamp(min=<N>)", "<T> / 2", "<T>.sum(0, keepdim=True) + <T>",
        "torch.stack(<LT>).sum(0)", "torch.stack([<T>, <T>], dim=<N> % 2).sum(<N> % 2)", "<LT>[0]", "<LT>[-1]",
        "<DT>['a']", "<DT>.get('b', <T>)", "<DT>.get('zz', <T>)", "<P>[0]", "<O>.t", "<O>(<T>)", "<O>.step(<T>)",
        "<O>.step(<T>, 1, by=<N>)", "<O>.step(<T>, *<LN>, **{'by': 2, 'other': <N>})", "<C>(<T>)", "plain(<T>, <N>)",
        "plain(<T>, <N>, <T>, <T>, flag=<B>)", "plain(<T>, *<LN>)", "plain(<T>, <N>, **<DN>)", "decorated(<T>)",
        "decorated(<T>, <N>)", "(<T> if <B> else <T>)", "functools.reduce(operator.add, <LT>)", "sum(<LT>)",
        "sum(<LT>, <T>)", "next(iter(<LT>))", "next(<G>, <T>)", "functools.reduce(lambda a, b: a * 0.5 + b, <G>, <T>)",
        "max(<LT>, key=lambda t: t.dim())", "sorted(<LT>, key=lambda t: t.shape[0])[0]", "(lambda a, b=<N>: a * b)(<T>)",
        "quiet_deep(<T>, <N> % 4)", "Base.twice(<T>)", "Child.build(<T>, <N>).t", "Pair(<T>, <N>).scaled()",
        "Pair(<T>)._replace(n=<N>).scaled()", "Square().both(<T>)", "operator.itemgetter('a')(<DT>)",
        "operator.attrgetter('t')(<O>)", "operator.methodcaller('sin')(<T>)", "functools.partial(plain, n=<N>)(<T>)",
        "functools.partial(plain, <T>)(<N>)", "[<T>, <T>][<B>]", "(<T>, <T>)[<N> % 2]", "copy.copy(<T>)",
        "torch.full((2, 3), <F>)", "torch.zeros_like(<T>)", "<T>.to(torch.float64).to(torch.float32)",
        "<T>.masked_fill(<T> > <F>, 0.0)", "torch.cat(<LT>)[:2]", "<T>.expand(2, 3).contiguous()", "(<T>)[...]",
        "<T>.unsqueeze(0).squeeze(0)", "torch.einsum('ij,ij->ij', <T>, <T>)", "<T>.detach()", "abs(<T>)", "<T> ** 2",
        "getattr(<T>, 'cos')()", "getattr(torch, 'tanh')(<T>)", "Record(<T>, <N>)(<T>)", "dataclasses.replace(Record(<T>), count=<N>)(<T>)",
        "list(<G>)[0] if <B> else <T>", "(*<LT>, <T>)[0]", "{**<DT>, 'q': <T>}['q']", "noisy(<T>)", "deep(<T>, <N> % 3)",
        "types.SimpleNamespace(a=<T>).a", "next(tensors(<T>, 2))", "torch.tensor([<N>, <N>, 1.0]) + <T>",
        "torch.arange(<N> % 3 + 3)[:3] + <T>", "drive(chain_waiting(<T>, <N> % 3))", "<T>.add(<T>, alpha=<N>)",
        "<T> * random.uniform(1, 2)", "<T> + random.randint(0, 5)", "operator.itemgetter(0)(<LT>)", "operator.methodcaller('add', <T>)(<T>)", "operator.itemgetter('b', 'a')({'a': <T>, 'b': <T>})[1]",
    ],
    "N": [
        "<N> + <N>", "<N> * <N> % 1000", "<N> - <N>", "<N> // (<N> * <N> + 1)", "<N> % 3", "-<N>", "~<N>", "<N> & 3", "<N> | 1",
        "(<N> << 1) % 64", "<N> ^ <N>", "abs(<N>)", "len(<LT>)", "len(<LN>)", "len(<S>)", "len(<DN>)", "<T>.shape[0]", "<T>.dim()",
        "<T>.size(-1)", "<T>.numel()", "sum(<LN>)", "max(<LN>, default=<N>)", "min(<N>, <N>, <N>)", "<DN>.get('a', <N>)",
        "<DN>['a']", "<P>[1]", "<O>.count", "int(<F>)", "(<N> if <B> else <N>)", "math.floor(<F>)", "round(<F>)",
        "divmod(<N>, 3)[1]", "<S>.count('a')", "<S>.find('b')", "random.randint(0, 5)", "int(<B>)", "ord('a')",
        "sorted(<LN>, reverse=<B>)[:1] and 1", "functools.reduce(lambda a, b: a + b, <LN>, <N>)", "cached(<N> % 7)", "bump()",
        "sum(1 for q in <I>)", "sum(q * q for q in <I>)", "sum(<N|q:N> for q in <I> if <B|q:N>)", "next(numbers(2))",
        "len({<N>, <N>, <N>})", "(z := <N>) + z", "int('12') + <N>", "Color.pick(<N>).value", "Level.HIGH + <N>",
        "len(<SN>)", "Frozen(<N>).n", "Config(width=<N>).width", "Ranked(<N>).n", "operator.index(Ranked(<N>))",
        "len(<Q>)", "Counter0()['a']", "remember(<S>, <N>)", "int(<T>.sum() > 0)", "zlib.crc32(<S>.encode()) % 7",
        "random.randrange(1, 6)", "random.choice([1, 2, 4])", "random.getrandbits(3)",
        "max(<I>, key=lambda q: -q, default=0)", "len(list(<G>))", "math.comb(5, <N> % 5)", "<N>.bit_length()",
        "collections.Counter(<S>)['a']", "pow(2, <N> % 5)", "[*<I>, 3][0]", "len(json.dumps(<LN>))", "hash(<N>) % 5",
        "<LN>.index(<N>) if <N> in <LN> else 0", "next((q for q in <I> if q > 1), -1)", "<O>.size", "len(<O>.tags)",
        "type(<O>).scale", "Base.made % 2", "len(dir(Mask)) * 0", "(lambda *a, **k: len(a) + len(k))(*<LN>, **<DN>)",
        "any(<B|q:N> for q in <I>) + 0", "itertools.accumulate(<LN>) and 2", "len(<A>) if hasattr(<A>, '__len__') else 0",
        "collections.Counter(<LN>).total()", "len(collections.Counter(<S>).most_common(1))", "bisect.bisect(sorted(<LN>), <N>)",
        "heapq.nsmallest(1, [*<LN>, <N>])[0]", "next(itertools.tee(<LN>)[1], 0)", "operator.itemgetter(-1)([0, *<LN>])", "hash(Frozen(<N>)) % 5",
        "len(re.findall('a', <S>))", "len([*<LN>, <N>][1:])", "functools.lru_cache(lambda q: q + 1)(<N>)",
    ],
    "F": [
        "<F> + <N>", "<F> * <F>", "<N> / 2", "math.sqrt(abs(<F>))", "float(<N>)", "math.sin(<F>)", "round(<F>, 1)",
        "min(<F>, <F>)", "<F> // 2", "Config().rate", "random.random()", "<T>.sum().item()", "float('1.5')", "abs(<F>)",
        "(<F> if <B> else <F>)", "math.fsum([<F>, <N>])", "math.hypot(<F>, 1)", "random.choice([<F>, 2.5])",
        "random.uniform(<F>, <N>)", "random.gauss(0, 1)", "RNG.random()", "random.Random(<N>).random()",
    ],
    "B": [
        "<N> > <N>", "<N> == <N>", "<S> == <S>", "<N> in <LN>", "not <B>", "<B> and <B>", "<B> or <B>", "<F> < <F>",
        "isinstance(<O>, Base)", "isinstance(<A>, (int, str))", "hasattr(<O>, 'limit')", "hasattr(<O>, 'auto_x')",
        "'a' in <DN>", "<S> in <DT>", "any(<LN>)", "all(q > 0 for q in <I>)", "<N> is None", "<A> is not None",
        "callable(<C>)", "issubclass(type(<O>), Base)", "bool(<T>.sum() > <F>)", "<T> is <T>", "<S>.startswith('a')",
        "<O> == <O>", "<N> in <O>", "<N> < <N> <= <N>", "<LN> == <LN>", "<LN> < [2]", "<DN> == <DN>", "<SN> <= {1, 2, 3}",
        "Frozen(<N>) < Frozen(<N>)", "Ranked(<N>) >= Ranked(<N>)", "Mask.A in (Mask.A | Mask.B)", "bool(<O>)", "bool(<LN>)",
        "isinstance(<T>, torch.Tensor)", "<T>.dtype == torch.float32", "<T>.requires_grad", "torch.is_grad_enabled()",
        "Color.RED is Color.pick(<N>)", "<T>.shape == <T>.shape", "<S>.isdigit()", "type(<A>) is int", "1 in <SN>",
        "<P> is <P>", "re.match('a', <S>) is not None", "<O> is <O>", "<LT> is <LT>", "Ranked(<N>) != Ranked(<N>)", "<O> != <O>",
        "Frozen(<N>) != Frozen(<N>)",
    ],
    "S": [
        "f'{<N.var>}-{<N.var>}'", "f'{<F.var>:.2f}'", "f'{<S.var>!r:>6}'", "<S>.upper()", "<S> + <S>", "<S> * 2", "<S>[::-1]", "str(<N>)",
        "','.join(str(q) for q in <I>)", "'%s-%d' % (<S>, <N>)", "'{} {:>4}'.format(<N>, <S>)", "repr(<LN>)", "str(<DN>)",
        "type(<O>).__name__", "<S>.replace('a', 'b')", "<S>.strip()", "'-'.join(sorted(<DN>))", "classify(<A>)",
        "classify(<LN>)", "classify(<DN>)", "classify(Frozen(<N>))", "classify(Point(<N>, <N>))", "classify((0, <N>))",
        "classify({'name': <S>, 'x': 1})", "described(<A>)", "Color.pick(<N>).name", "Registered.__name__", "Ranked.label",
        "str(<T>.dtype)", "f'{<T.var>.shape}'", "f'{<O.var>}' if isinstance(<O.var>, Base) else 'no'", "str(<SN> & {1})", "<S>.title()",
        "re.sub('[ab]', 'x', <S>)", "string.ascii_lowercase[<N> % 5]", "(<S> if <B> else <S>)", "plain.__name__",
        "decorated.__name__", "str(tuple(<T>.shape))", "f'{<N.var>=}'", "f'{<N.var>:{<N.var> % 4 + 2}d}'", "<S>.partition(',')[0]",
        "' '.join(<S>.split(','))", "repr(Frozen(<N>))", "repr(Color.RED)", "str(Mask.A | Mask.C)", "<S>.center(5, '*')",
        "str(Point(<N>, <N>))", "str(dataclasses.asdict(Frozen(<N>)))", "max(<S>, 'b', key=len)", "Ranked.title",
        "''.join(map(str, <LN>))", "str(sorted(vars(Frozen(<N>)).items()))",
        "repr(Config(width=<N>))", "str(Boom(<N>, <S>))", "repr(KeyError(<S>))", "f'{[Frozen(<N>)]}'", "'/'.join(re.split('[ab]', <S>))",
    ],
    "LT": [
        "[<T>, <T>]", "[<T|q:N> for q in range(2)]", "[t * 2 for t in <LT>]", "<LT> + <LT>", "<LT>[:2]", "list(<G>) + [<T>]",
        "[*<LT>, <T>]", "list(map(torch.sin, <LT>))", "list(<DT>.values()) + [<T>]", "[t for t in <LT> if <B>] + [<T>]",
        "[a + b for a, b in zip(<LT>, <LT>)] or [<T>]", "sorted(<LT>, key=lambda t: t.numel())", "<LT>[::-1]", "<LT>.copy()",
        "list(reversed(<LT>))", "[t + i for i, t in enumerate(<LT>)]", "list(<T>.unbind(0)) and [<T>]", "<LT> * 1",
        "[*itertools.chain(<LT>, [<T>])]", "list(itertools.islice(<G>, 2)) + [<T>]", "[<O>(<T>)]", "list(<O>.items)",
        "[u * v for u in <LT> for v in [1, 2]]", "copy.copy(<LT>)", "Stack(<LT>).push(<T>)", "[noisy(t) for t in <LT>]",
        "[(lambda t=t: t + 1)() for t in <LT>]", "list(itertools.starmap(plain, [(<T>, <N>)]))", "copy.deepcopy(<LT>)",
    ],
    "LN": [
        "[<N>, <N>]", "[q + 1 for q in <I>]", "[<N|q:N> for q in <I>]", "sorted(<LN>)", "sorted(<I>, key=lambda q: -q)",
        "<LN> + <LN>", "list(<I>)", "list(<DN>.values())", "<LN>[1:]", "<LN>[::-1]", "[q for q in <LN> if q % 2]", "<LN> * 2",
        "list(range(<N> % 5))", "list(map(abs, <LN>))", "list(filter(None, <LN>))", "[i * q for i, q in enumerate(<LN>)]",
        "sorted(<SN>)", "list(itertools.accumulate(<LN>))", "[sum(p) for p in itertools.product([1, 2], <LN>)]",
        "list(itertools.chain.from_iterable([<LN>, <LN>]))", "[len(p) for p in itertools.combinations(<LN>, 2)]",
        "[a for a, b in itertools.pairwise(<LN>)]", "list(itertools.takewhile(lambda q: q < 3, <I>))", "list(<Q>)",
        "list(itertools.islice(itertools.count(<N>), 3))", "[len(list(g)) for _, g in itertools.groupby(sorted(<LN>))]",
        "[q for r in [<LN>, <LN>] for q in r]", "random.sample([1, 2, 3, 4], 2)", "random.choices(<LN>, k=2)", "RNG.sample(range(9), 2)", "list(dict.fromkeys(<LN>))",
        "[x for x in <I>]", "[n for n in range(3)]", "list(delegating(2))", "[*<I>, *<I>]", "list(Steps(3))", "copy.deepcopy(<LN>)",
        "list(zip(*[<LN>, <LN>]))[:0]", "[int(c.isalpha()) for c in <S>]", "list(itertools.compress(<LN>, [1, 0, 1]))",
        "list(itertools.zip_longest(<LN>, [1]))[:0]", "list(itertools.dropwhile(lambda q: q < 2, <LN>))", "[(k := q) for q in <LN>]",
        "list(itertools.filterfalse(lambda q: q % 2, <LN>))", "list(itertools.starmap(pow, [(2, 3), (<N>, 2)]))",
        "list(itertools.repeat(<N>, 2))", "[b for b in itertools.islice(itertools.cycle([1, 2]), 3)]",
        "[len(b) for b in itertools.permutations([1, 2], 2)]", "list(collections.ChainMap(<DN>, {'q': 1}).values())",
        "sorted(<LN>, key=functools.cmp_to_key(lambda a, b: b - a))", "list(itertools.tee(<I>)[0])", "[*heapq.merge(sorted(<LN>), [1, 4])]",
    ],
    "DN": [
        "{'a': <N>, 'b': <N>}", "dict(a=<N>)", "{**<DN>, 'a': <N>}", "{c: i for i, c in enumerate(<S>)}", "<DN> | <DN>",
        "dict(zip('abc', <LN>))", "{q: len(q) for q in sorted(<DN>)}", "<DN>.copy()", "dict(sorted(<DN>.items()))",
        "{k: v + 1 for k, v in <DN>.items()}", "dict(collections.Counter(<S>))", "dict.fromkeys('ab', <N>)", "copy.copy(<DN>)",
        "{v: 1 for v in ('a', 'c')}", "collections.OrderedDict(a=<N>, b=1)", "dict(Options(size=<N>))", "copy.deepcopy(<DN>)",
        "dict(collections.defaultdict(int, a=<N>))", "Pair(x, <N>)._asdict() and {'a': 1}", "dataclasses.asdict(Frozen(<N>)) and {}",
    ],
    "DT": [
        "{'a': <T>, 'b': <T>}", "dict(a=<T>, c=<T>)", "{**<DT>, 'b': <T>}", "{k: v * 2 for k, v in <DT>.items()} | {'a': <T>}",
        "dict(zip('ab', <LT>)) | {'a': <T>}", "<DT>.copy()", "collections.OrderedDict(a=<T>)", "<DT> | {'a': <T>}",
    ],
    "SN": ["{<N>, <N>}", "set(<LN>)", "{q % 3 for q in <I>}", "<SN> | <SN>", "<SN> & <SN>", "<SN> - {1}", "frozenset(<LN>)",
           "set(<I>)", "<SN> ^ {1, 9}", "set(<LN>).union(<LN>)"],
    "Q": ["collections.deque(<LN>)", "collections.deque(<LN>, maxlen=2)", "collections.deque(<I>)", "<Q>.copy()"],
    "P": ["(<T>, <N>)", "Pair(<T>, <N>)", "tuple([<T>, <N>])", "(*[<T>], <N>)", "divmod(<N>, 2) and (<T>, 1)",
          "max([(<T>, 1), (<T>, 2)], key=lambda p: p[1])"],
    "O": ["Base(<T>, <N>)", "Child(<T>, <N>)", "Child(<T>, bias=<N>)", "Guarded(<T>, <N>)", "Slotted(<T>, <N>)", "Record(<T>, <N>)",
          "Child.build(<T>, <N>)", "Base(<T>) + <N>", "Base(<T>) + Child(<T>)", "copy.copy(<O>)", "-Slotted(<T>)", "1 + Base(<T>)",
          "(<O> if <B> else <O>)"],
    "C": ["(lambda a: a + <T>)", "(lambda a, *r: a * <N>)", "functools.partial(plain, n=<N>)", "<O>", "<O>.step", "torch.cos", "noisy",
          "functools.partial(torch.add, <T>)", "(plain if <B> else decorated)", "operator.neg", "scaled_by(<N>)(plain)",
          "logged(lambda a: a - <N>)", "operator.methodcaller('mul', <N>)", "getattr(<O>, 'step')", "torch.nn.functional.relu"],
    "G": ["tensors(<T>, <N> % 3)", "(t + <N> for t in <LT>)", "iter(<LT>)", "map(torch.sin, <LT>)", "iter(<O>.items)", "talking(<T>, 2)",
          "(t for t in <LT> if <B>)", "itertools.chain(<LT>, [<T>])", "filter(lambda t: t.dim() == 2, <LT>)", "reversed(<LT>)",
          "(<T|t:T> for t in <LT>)", "iter(<DT>.values())", "zip(<LT>) and iter(<LT>)", "itertools.islice(<LT>, 2)",
          "itertools.repeat(<T>, 2)", "map(<C>, <LT>)"],
    "I": ["range(<N> % 4)", "range(3, 0, -1)", "<LN>", "numbers(<N> % 4)", "delegating(<N> % 3)", "(q * 2 for q in <LN>)", "map(abs, <LN>)",
          "Steps(<N> % 4)", "reversed(<LN>)", "tuple(<LN>)", "filter(None, <LN>)", "<DN>.values()", "itertools.chain(<LN>, [<N>])",
          "itertools.islice(itertools.count(), <N> % 4)", "iter(<LN>)", "(i + q for i, q in enumerate(<LN>))", "<Q>",
          "itertools.takewhile(lambda q: q < 4, <LN>)", "itertools.accumulate(<LN>, initial=0)", "itertools.cycle([1]) and [1]"],
    "M": ["Manager('m')", "Manager('s', ValueError)", "Manager('b', (Boom, KeyError))", "managed(<T>)", "printing(<S>)", "torch.no_grad()",
          "contextlib.nullcontext(<N>)", "contextlib.suppress(KeyError, Boom)", "torch.enable_grad()", "torch.set_grad_enabled(<B>)"],
    "A": ["<N>", "<S>", "<T>", "<LN>", "<DN>", "<O>", "None", "<B>", "<F>", "(<N>, <N>)", "Frozen(<N>)", "Color.RED", "Point(<N>, 0)",
          "<SN>", "b'x'", "[]", "[1, 2]", "{}", "range(<N>)"],
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A template. `inside` says where alone it may stand: in a loop or in a generator function."""

    text: str
    weight: float = 1.0
    inside: str = ""

    @property
    def compound(self) -> bool:
        """Whether it has a block."""
        return "<BODY" in self.text or "<FUNCTION" in self.text or "<GENERATOR" in self.text


_SIMPLE = """
<T.new> = <T>
<T.new> = <T>
<N.new> = <N>
<F.new> = <F>
<B.new> = <B>
<S.new> = <S>
<LT.new> = <LT>
<LN.new> = <LN>
<DN.new> = <DN>
<DT.new> = <DT>
<SN.new> = <SN>
<Q.new> = <Q>
<O.new> = <O>
<C.new> = <C>
<G.new> = <G>
<T.own> = <T>
<T.own> = <T>
<N.own> = <N>
<T.own> += <T>
<T.own> *= <N>
<N.own> += <N>
<S.own> += <S>
<LN.own> += <LN>
<LN.own> += <I>
<T.own>.add_(<T>)
<T.own>.mul_(<F>)
<T.own>.unsqueeze_(1).squeeze_(1)
<T.own>.t_().transpose_(0, 1)
<T.own>[0] = <N>
<T.own>[:, 1] += <F>
<T.new>, <N.new> = <P>
<N.new>, *<LN.new> = [<N>, *<LN>]
*<LT.new>, <T.new> = <LT>
<T.new> = <T.new> = <T>
<LN>.append(<N>)
<LN.own>.extend(<I>)
<LN.own>.insert(<N>, <N>)
<LN.own>.sort()
<LN.own>.sort(key=lambda q: -q, reverse=<B>)
<LN.own>.reverse()
<LN.own>[1:2] = <LN>
<LN.own>[:1] = [<N>, <N>]
del <LN.own>[:1]
<LT.own>.append(<T>)
<LT.own>[0] = <T>
<LT.own>[0].add_(1)
<DN.own>['a'] = <N>
<DN.own>[<S>] = <N>
<DN.own>['b'] = <DN.own>.get('b', 0) + <N>
<DN.own>.update(<DN>)
<DN.own>.update(q=<N>)
<DN.own>.pop('b', None)
<DN.own>.setdefault('s', <N>)
<DN.own> |= <DN>
del <DN.own>['a']
<DT.own>['a'] = <T>
<DT.own>[<S>] = <T>
<DT.own>['a'] += 1
<SN.own> = <SN.own> | {<N>}
<Q.own>.append(<N>)
<Q.own>.appendleft(<N>)
<Q.own>.rotate(1)
<O.own>.count = <N>
<O.own>.t = <T>
<O.own>.size = <N>
<O.own>.tags.append(<N>)
<O.own>.count += 1
<O.own> += 1
<O.own>.extra = <A>
<O.own>.t, <O.own>.count = <T>, <N>
setattr(<O.own>, 'count', <N>)
type(<O.own>).scale = <N> % 3 + 1
Base.scale += 1
LOG.append(<N>)
LOG.append(<S>)
LOG.append(<T>)
LOG.append((<S>, <LN>))
TABLE[<S>] = <T>
TABLE['n'] = TABLE.get('n', 0) + <N>
TABLE.setdefault('l', []).append(<N>)
CACHE[<S>] = <N>
CACHE.move_to_end(next(iter(CACHE))) if CACHE else None
bump(<N>)
print('at', <N>)
print(<S>, <N>)
print(f'{<S.var>!r}')
torch._dynamo.graph_break() if False else None
json.dumps(<LN>)
<F.new> = <T>.mean().item()
<N.new> = int(<T>.sum().item() * 0 + <N>)
<T.new> = noisy(<T>)
<T.new> = deep(<T>, <N> % 4)
assert <N> < 100, 'too much'
assert <B> or True
<C.new> = lambda q, m=<N>: q * m
<G.new> = (<T|t:T> for t in <LT>)
<N.new> = sum(<I>)
random.shuffle(<LN.own>)
random.seed(<N>)
RNG.seed(<S>)
LOG.append(random.random())
<N.new> = random.randint(0, 3)
<T.new> = torch.rand(2, 3)
<LT.new> = list(<G>)
<T.new> = next(<G.own>, <T>)
<LT.new> = list(<G.own>)
<O.new> = copy.copy(<O>)
<S.new> = classify(<A>)
<T.new>, <T.new> = <T>, <T>
<T.own>, <T.own> = <T.own>, <T.own>
<N.own>, <N.own> = <N.own>, <N.own>
(<T.new>, (<N.new>, <N.new>)) = (<T>, (<N>, <N>))
if (<N.new> := <N>) > 1: LOG.append('walrus')
checked(<T>, 2)
heapq.heappush(<LN.own>, <N>)
bisect.insort(<LN.own>, <N>)
del <O.own>.size
LOG.append(repr(Config(width=<N>)))
LOG.extend(<LN>)
<N.new> = LOG[0] if LOG and isinstance(LOG[0], int) else 0
TABLE.update(last=<N>)
""".strip().split("\n")

_COMPOUND: list[tuple[str, float]] = [
    ("if <B>:\n    <BODY>", 3),
    ("if <B>:\n    <BODY>\nelse:\n    <BODY>", 3),
    ("if <B>:\n    <BODY>\nelif <B>:\n    <BODY>\nelse:\n    <BODY>", 2),
    ("if <T>.sum() > <F>:\n    <BODY>\nelse:\n    <BODY>", 1),
    ("for <N.new> in <I>:\n    <BODY>", 4),
    ("for <T.new> in <LT>:\n    <BODY>", 3),
    ("for <T.new> in <G>:\n    <BODY>", 3),
    ("for <N.new>, <T.new> in enumerate(<LT>):\n    <BODY>", 2),
    ("for <N.new>, <T.new> in enumerate(<G>, <N>):\n    <BODY>", 2),
    ("for <T.new>, <N.new> in zip(<LT>, <I>):\n    <BODY>", 2),
    ("for <S.new>, <N.new> in <DN>.items():\n    <BODY>", 2),
    ("for <S.new>, <T.new> in list(<DT>.items()):\n    <BODY>", 1),
    ("for <S.new> in sorted(<DN>):\n    <BODY>", 1),
    ("for <S.new> in <S>:\n    <BODY>", 1),
    ("for <N.new> in <LN>:\n    <BODY>\nelse:\n    <BODY>", 2),
    ("for <N.new> in <LN>:\n    if <B>:\n        break\n    <BODY>\nelse:\n    <BODY>", 2),
    ("for <N.new> in <I>:\n    if <B>:\n        continue\n    <BODY>", 2),
    ("for <N.new> in range(3):\n    for <N.new> in range(2):\n        <BODY>", 1),
    ("for <T.new> in tensors(<T>, 3):\n    print('step')\n    <BODY>", 1),
    ("<N.new> = 0\nwhile $N < 3:\n    $N += 1\n    <BODY>", 2),
    ("<N.new> = <N> % 4\nwhile $N:\n    $N -= 1\n    print('left', $N)\n    <BODY>", 1),
    ("<N.new> = 0\nwhile True:\n    $N += 1\n    if $N > 2:\n        break\n    <BODY>", 1),
    ("<LN.new> = list(<I>)\nwhile $LN:\n    $LN.pop()\n    <BODY>", 1),
    ("try:\n    <BODY>\nexcept ValueError:\n    <BODY>", 2),
    ("try:\n    <BODY>\n    failing(<T>, <N>)\nexcept (ValueError, Boom) as error:\n    LOG.append(str(error))\n    <BODY>", 2),
    ("try:\n    <T.new> = failing(<T>, <N>)\nexcept ValueError as error:\n    LOG.append(error.args)\nexcept Boom as error:\n    LOG.append(error.code)\nelse:\n    <BODY>\nfinally:\n    <BODY>", 2),
    ("try:\n    <BODY>\nfinally:\n    <BODY>", 2),
    ("try:\n    checked(<T>, <N>)\nexcept KeyError as error:\n    LOG.append((type(error.__cause__).__name__, error.args))\nexcept Boom:\n    <BODY>", 1),
    ("try:\n    try:\n        <BODY>\n        raise Boom(<N>)\n    finally:\n        <BODY>\nexcept Boom as error:\n    <N.new> = error.code", 1),
    ("try:\n    raise Boomer(<N>, <S>)\nexcept Boom as error:\n    <BODY>\n    LOG.append(repr(error))", 1),
    ("try:\n    try:\n        <DN>['missing']\n    except KeyError as first:\n        raise Boom(1) from first\nexcept Boom as second:\n    LOG.append(repr(second.__cause__))\n    <BODY>", 1),
    ("try:\n    try:\n        raise Boom(<N>)\n    except Boom:\n        <LN>[99]\nexcept IndexError as error:\n    <BODY>\n    LOG.append((repr(error.__context__), error.__traceback__ is None, error.__suppress_context__))", 1),
    ("<Z.new> = catching(3)\nnext($Z)\n$Z.throw(KeyError)\n<BODY>\n$Z.close()", 1),
    ("try:\n    <LN>[99]\nexcept IndexError as error:\n    print(error)\n    <BODY>", 1),
    ("try:\n    raise ExceptionGroup('g', [ValueError(<N>), Boom(2)])\nexcept* ValueError as group:\n    LOG.append(len(group.exceptions))\nexcept* Boom:\n    <BODY>", 1),
    ("with <M>:\n    <BODY>", 4),
    ("with <M>, <M>:\n    <BODY>", 2),
    ("with managed(<T>) as <T.new>:\n    <BODY>", 2),
    ("with Manager('w') as manager, printing('p') as <N.new>:\n    <BODY>", 1),
    ("with contextlib.ExitStack() as stack:\n    stack.enter_context(Manager('e'))\n    <BODY>", 1),
    ("with contextlib.suppress(ValueError, Boom, KeyError):\n    <BODY>\n    failing(<T>, <N>)", 2),
    ("with Manager('v', (ValueError, Boom)):\n    <BODY>\n    <T.new> = failing(<T>, <N>)", 1),
    ("with managed(<T>) as <T.new>:\n    <BODY>\n    raise KeyError('in with')", 1),
    ("def <C.new>(a, b=<N>, *c, d=<N>, **e):\n    <FUNCTION T a:T,b:N,d:N>\n<T.new> = $C(<T>)", 3),
    ("@logged\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 1),
    ("def <C.new>(a):\n    nonlocal n\n    n += 1\n    <FUNCTION T a:T>\nn = n + 0\n<T.new> = $C(<T>)", 1),
    ("def <Y.new>(a, b):\n    <GENERATOR a:T,b:N>\n<LT.new> = [*$Y(<T>, <N>), <T>]", 2),
    ("def <Y.new>(a, b):\n    <GENERATOR a:T,b:N>\nfor <T.new> in $Y(<T>, <N>):\n    <BODY>", 2),
    ("def <Y.new>(a):\n    got = yield a\n    <GENERATOR a:T,got:N>\n<Z.new> = $Y(<T>)\nnext($Z)\n<T.new> = $Z.send(<N>)\n<BODY>\n$Z.close()", 1),
    ("<Z.new> = closing(<T>, 3)\n<T.new> = next($Z)\n<BODY>\n$Z.close()", 1),
    ("<Z.new> = catching(4)\nnext($Z)\n<BODY>\n<N.new> = $Z.send(<N>)\n$Z.throw(KeyError(<N>))\n<BODY>\n<N.new> = next($Z, 0)\n$Z.close()", 1),
    ("<Z.new> = closing(<T>, 2)\ntry:\n    <T.new> = next($Z)\n    <BODY>\nfinally:\n    $Z.close()", 1),
    ("for <T.new> in list(closing(<T>, 2)):\n    <BODY>", 1),
    ("<add.new>, <get.new> = make_counter(<N>)".replace("<add.new>", "add").replace("<get.new>", "get") + "\nadd(<N>)\n<BODY>\n<N.new> = add(1) + get()", 1),
    ("class Local:\n    k, t = <N>, <T>\n    def __init__(self, n=<N>):\n        self.n = n\n    def run(self, a):\n        <FUNCTION T a:T>\n<T.new> = Local(<N>).run(<T>) + Local.k + Local.t", 1),
    ("@dataclasses.dataclass\nclass Local:\n    t: object\n    n: int = 2\n    def run(self, a):\n        return a * self.n + self.t\n<T.new> = Local(<T>).run(<T>)\nLOG.append(repr(Local(1, <N>)))\n<BODY>", 0.5),
    ("class Local(Base):\n    def __call__(self, a):\n        <FUNCTION T a:T>\n<O.new> = Local(<T>, <N>)", 0.5),
    ("match <A>:\n    case int() as m if m > 1:\n        <BODY>\n    case [a, *_]:\n        <BODY>\n    case {'a': _}:\n        <BODY>\n    case str():\n        <BODY>\n    case _:\n        <BODY>", 1),
    ("match (<N>, <S>):\n    case (0, _):\n        <BODY>\n    case (m, 'ab' | 'key'):\n        LOG.append(m)\n    case _:\n        <BODY>", 1),
    ("match <O>:\n    case Base(count=1):\n        <BODY>\n    case Record(t=_, count=m):\n        LOG.append(m)\n    case Slotted():\n        <BODY>\n    case _:\n        <BODY>", 1),
    ("with torch.no_grad():\n    <BODY>\n    print(torch.is_grad_enabled())", 1),
    ("for <N.new> in range(2):\n    try:\n        <BODY>\n        if <B>:\n            continue\n    finally:\n        LOG.append('f')", 1),
    ("for <N.new> in range(3):\n    with Manager('l'):\n        if <B>:\n            break\n        <BODY>", 1),
]  # fmt: skip

STATEMENTS: list[Statement] = [
    *(Statement(text) for text in _SIMPLE),
    *(Statement(text, 1.5 * weight) for text, weight in _COMPOUND),
    Statement("break", 1.5, "loop"),
    Statement("if <B>: break", 3, "loop"),
    Statement("if <B>: continue", 3, "loop"),
    Statement("print('in loop', <N>)", 3, "loop"),
    Statement("yield <T>", 8, "generator"),
    Statement("got = yield <T>\nLOG.append(got is None)", 3, "generator"),
    Statement("yield from <LT>", 4, "generator"),
    Statement("yield from tensors(<T>, 2)", 2, "generator"),
    Statement("if <B>: return", 2, "generator"),
    Statement("if <B>: return <T>", 0.0),
    Statement("if <B>: raise Boom(<N>)", 0.7),
    Statement("raise ValueError(<S>)", 0.1),
]
