"""A mean squared error, as an entry of the operation table."""

from __future__ import annotations

from obligations.ops.base import Array, Family, Given, Loss, LossFault, Name, Values


def squared(y: Array, z: Array) -> Array:
    """``Σ_k (z_k - y_k)²`` of the last axis."""
    total: Array = ((z - y) ** 2).sum(axis=-1, keepdims=True)
    return total


def value(n: int, k: int, given: Values, z: Array) -> Array:
    """``Σ_n Σ_k (z - y)² / M``, ``(p, 1)``."""
    return squared(given["y"], z) / given["M"]


def gradient(n: int, k: int, given: Values, z: Array) -> Array:
    """``2 (z - y) / M``, ``(p, n * k)``."""
    return 2 * (z - given["y"]) / given["M"]


def graph_value(n: int, k: int, m: Array, two: str, by: str, z: Array, y: Array) -> Array:
    return gradient(n, k, {"M": m, "y": y}, z)


def graph(m: str = "M", z: str = "logits", y: str = "y") -> str:
    return f"mseCotGraph N K {m} twoStr mStr {z} {y}"


def derivative(y: str = "y", z: str = "logits", over: str = " / M") -> str:
    at, row = (f"Mat.unflatten (batchSlice N (1 * K) {v} n) (0 : Fin 1)" for v in (z, y))
    square = f"pdiv (fun z' : Vec K => fun _ : Fin 1 => squaredError K ({row}) z') ({at}) j 0"
    return f"({square}){over}"


MSE = Loss(
    word="squared error",
    says=("mean squared error",),
    value=value,
    gradient=gradient,
    constants=(Given("M", "ℝ", lambda rng, n, k: rng.uniform(2.0, 5.0, (1, 1))),),
    data=(Given("y", "Vec (N * (1 * K))", lambda rng, n, k: rng.normal(size=(1, n * k))),),
    strings=("twoStr", "mStr"),
    divisor="M",
    graph=graph(),
    derivative=derivative(),
    proof="mseCotGraph_row N K M twoStr mStr _ y n j",
    bound=("z'",),
    marks=("mseCotGraph", "pdiv"),
    says_row="Row `n` is the derivative of the squared error, over `M`.",
    faults=(
        LossFault("loss: factor lost", "M is 1", graph=graph(m="1")),
        LossFault("loss: factor lost", "the 2 is lost", graph=graph(m="(2 * M)")),
        LossFault("loss: wrong target", "the target is the logits", graph=graph(y="logits")),
        LossFault("loss: factor lost", "1/M is lost", derivative=derivative(over="")),
        LossFault("loss: wrong target", "it is taken at the target", derivative=derivative(z="y")),
    ),
)

TAKES = "(M : ℝ) (twoStr mStr : String) (logits y : Vec (N * (1 * K)))"
NAMES = (
    Name(
        "mseCotGraph",
        f"(N K : Nat) {TAKES} : SHlo (N * (1 * K))",
        value=graph_value,
        inert=("twoStr", "mStr"),
    ),
    Name("squaredError", "(K : Nat) (y z : Vec K) : ℝ", value=lambda k, y, z: squared(y, z)),
    Name(
        "mseCotGraph_row",
        f"(N K : Nat) {TAKES} (n : Fin N) (j : Fin K) : den ({graph()})"
        f" (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) = {derivative()}",
        proves=True,
    ),
)
FAMILY = Family(names=NAMES, losses=(MSE,))
