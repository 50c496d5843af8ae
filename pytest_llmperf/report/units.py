"""How numbers are printed: three or four significant digits, always with a unit; and names, whatever is in them."""

from __future__ import annotations

import math

__all__ = ["format_change", "format_value", "percent", "printable", "shortened"]

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
#: Units that take SI prefixes; others are printed as they are.
_PREFIXED = {"s", "W", "J", "Hz", "B", "B/s", "FLOP/s"}
#: A ratio from here on is told by this bound.
_SENSELESS = 1e4
#: What is larger or smaller is written with an exponent.
_LARGEST, _SMALLEST = 1e12, 1e-9
#: A name in a sentence; ids made of parameters have any length.
_LONGEST_NAME = 100


def format_value(value: float | None, unit: str, *, bare: bool = False) -> str:
    """``0.00467, "s"`` as ``"4.670 ms"``; ``None``, and what is beyond all numbers, as a dash.

    Args:
        value: In SI units.
        unit: As the metric names it; the unit 1 is a ratio, printed in percent.
        bare: Leave the unit out, where a column's head names it.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "1":
        if abs(value) >= _SENSELESS:
            return f"{'over ' if value > 0 else 'below -'}{_SENSELESS:,.0%}"
        return f"{value:.1%}" if abs(value) >= 0.1 or value == 0 else f"{value:.2%}"
    if unit in _PREFIXED and value != 0:
        # 0.9996 of a unit still prints as 1.000 of it, not as 999.6 thousandths.
        size = abs(value) * 1.00005
        factor, prefix = next(((f, p) for f, p in _PREFIXES if size >= f), _PREFIXES[-1])
        if unit == "s" and factor > 1:
            factor, prefix = 1.0, ""
        return f"{_digits(value / factor)} {prefix}{unit}"
    return _digits(value) if bare else f"{_digits(value)} {unit}"


def format_change(change: float | None) -> str:
    """A relative change with its sign: ``"+7.2 %"``."""
    return "-" if change is None else f"{percent(change)} %"


def percent(change: float) -> str:
    """The number of a relative change in percent: ``"+7.2"``; one without sense to a reader is cut off."""
    if not abs(change) < _SENSELESS:
        return "below -1,000,000" if change < 0 else "over +1,000,000"
    return f"{change * 100:+.1f}" if change < 10 else f"{change * 100:+,.0f}"


def printable(text: str) -> str:
    """Text in which control characters, of a test's id or a server's name, cannot act on the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A test's id as a sentence can hold it, without control characters; a longer one is cut in its middle.

    Ids differ at their ends, in the parameters. Files have them whole.
    """
    name = printable(name)
    behind = longest * 3 // 5
    return name if len(name) <= longest else f"{name[: longest - 1 - behind]}…{name[-behind:]}"


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if not _SMALLEST <= abs(value) < _LARGEST:
        return f"{value:.3g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 3 if abs(value) >= 0.1 else 9)}f}"
