"""`div_at_least`, `div_root_at_least`: a, b → a over b, or over its root, which is `least` at least.
`factored_scale`: norms of a parameter and of a direction → how far Adafactor goes.

Attributes: `least`; `elements`, `eps`, `d`.
"""

from pytorch import Operation, widen


def div_at_least(op: Operation) -> None:
    for a, b in [
        (op.normal(5, 37), op.normal(1, 37).abs()),
        (op.normal(3, 5), op.normal(3, 1).abs()),
        (op.normal(48), op.normal().abs()),
        (op.normal(0, 5), op.normal(5).abs()),
    ]:
        op.record((a, b), [widen(a) / widen(b).clamp(min=0.25)], {"least": 0.25})


def div_root_at_least(op: Operation) -> None:
    for a, b in [
        (op.normal(5, 37), op.normal(1, 37).abs()),
        (op.normal(3, 5), op.normal(3, 1).abs()),
        (op.normal(48), op.normal().abs()),
        (op.normal(0, 5), op.normal(5).abs()),
    ]:
        result = widen(a) * widen(b).clamp(min=0.25**2).rsqrt()
        op.record((a, b), [result], {"least": 0.25})


def factored_scale(op: Operation) -> None:
    for d in (1.0, 1.5, 2.0, 4.0):
        a, b = op.normal(5, 37).abs(), op.normal(5, 37).abs() * 40
        update = (widen(b) / (10 * d)).clamp(min=1.0)
        attrs = {"elements": 100, "eps": 1e-2, "d": d}
        op.record((a, b), [(widen(a) / 10).clamp(min=attrs["eps"]) / update], attrs)


OPERATIONS = {
    "div_at_least": div_at_least,
    "div_root_at_least": div_root_at_least,
    "factored_scale": factored_scale,
}
