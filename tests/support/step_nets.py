"""Small nets of every layer kind, for rendering."""

from step_renderer import Net, add, bn, conv, depthwise, head, maxpool, relu


def residual(**options: object) -> Net:
    """A stem with a pool, an identity block, a down block with a projection."""
    layers = (
        conv("s", "x", "sW", 4, 3, 2, (1, 1)),
        bn("sn", "s", "sg", "sbt"),
        relu("sr", "sn"),
        maxpool("p", "sr", 3, 2, (1, 1)),
        conv("c1", "p", "aW1", 4, 3),
        bn("n1", "c1", "ag1", "abt1"),
        relu("r1", "n1"),
        conv("c2", "r1", "aW2", 4, 3, bias="ab2"),
        bn("n2", "c2", "ag2", "abt2"),
        add("a", "n2", "p"),
        relu("ar", "a"),
        conv("d1", "ar", "dW1", 5, 3, 2),
        bn("m1", "d1", "dg1", "dbt1"),
        relu("q1", "m1"),
        conv("d2", "q1", "dW2", 5, 3, bias="absent"),
        bn("m2", "d2", "dg2", "dbt2"),
        conv("dp", "ar", "dWp", 5, 1, 2),
        bn("mp", "dp", "dgp", "dbtp"),
        add("e", "m2", "mp"),
        relu("er", "e"),
        *head("er"),
    )
    return Net(2, 2, 16, layers, **options)  # type: ignore[arg-type]


def inverted(**options: object) -> Net:
    """An XLA-padded stem, an inverted residual, a strided one."""
    layers = (
        conv("s", "x", "sW", 3, 3, 2, (0, 1)),
        bn("sn", "s", "sg", "sbt"),
        relu("sr", "sn", "relu6"),
        conv("e1", "sr", "aeW", 6, 1),
        bn("en", "e1", "aeg", "aebt"),
        relu("er", "en", "relu6"),
        depthwise("d1", "er", "adW", 3),
        bn("dn", "d1", "adg", "adbt"),
        relu("dr", "dn", "relu6"),
        conv("p1", "dr", "apW", 3, 1),
        bn("pn", "p1", "apg", "apbt"),
        add("a", "pn", "sr"),
        conv("e2", "a", "beW", 6, 1, bias="absent"),
        bn("en2", "e2", "beg", "bebt"),
        relu("er2", "en2", "relu6"),
        depthwise("d2", "er2", "bdW", 3, 2, (0, 1)),
        bn("dn2", "d2", "bdg", "bdbt"),
        relu("dr2", "dn2", "relu6"),
        conv("p2", "dr2", "bpW", 4, 1),
        bn("pn2", "p2", "bpg", "bpbt"),
        *head("pn2"),
    )
    return Net(2, 2, 8, layers, **options)  # type: ignore[arg-type]


NETS = {"residual": residual(), "inverted": inverted(), "instance": residual(statistics="instance")}
