"""What a board's sensors would say of a known curve of power, read as the sampler reads them."""

import math
import random
from dataclasses import dataclass

from tests.fake_nvml.curves import Curve

NS = 1_000_000_000


@dataclass(frozen=True)
class Sensors:
    """One generation's.

    Attributes:
        period_s: Of counter and power alike.
        window_s: That a power reading is the mean of.
        noise_w: Give or take so much.
        read_s: That a read of the counter takes.
        ahead: Every so manyth step is looked for.
    """

    period_s: float
    window_s: float
    noise_w: float
    read_s: float
    ahead: int = 1

    def counter(self, curve: Curve, rng: random.Random, seconds: float, phase: float, start_j: float = 1e6):
        """Reads about every step that is looked for."""

        def value(t):
            return start_j + curve.joules(
                0.0, max(0.0, phase + math.floor((t - phase) / self.period_s) * self.period_s)
            )

        reads = []
        for n in range(0, int(seconds / self.period_s) + 1, self.ahead):
            step = phase + n * self.period_s
            before = step - 0.002 - self.read_s / 2 - abs(rng.gauss(0, 0.0005))
            after = step + 0.0015 + self.read_s / 2 + abs(rng.gauss(0, 0.0005))
            reads += [(round(t * NS), value(t)) for t in (before, after) if 0 < t < seconds]
        return reads

    def power(self, curve: Curve, rng: random.Random, seconds: float, phase: float):
        """A reading about every 10 ms."""
        noise = {}
        readings = []
        t = rng.uniform(0, 0.01)
        while t < seconds:
            n = math.floor((t - phase) / self.period_s)
            update = max(self.window_s, phase + n * self.period_s)
            mean = curve.joules(update - self.window_s, update) / self.window_s
            noise.setdefault(n, rng.uniform(-self.noise_w, self.noise_w))
            readings.append((round(t * NS), mean + noise[n]))
            t += 0.01 + rng.expovariate(3000)
        return readings

    def both(self, curve: Curve, rng: random.Random, seconds: float):
        """Readings of both sensors, whose updates come at the same time."""
        phase = rng.uniform(0, self.period_s)
        return self.counter(curve, rng, seconds, phase), self.power(curve, rng, seconds, phase)


V100 = Sensors(0.02, 0.01, 0.2, 0.0001, ahead=2)
A100 = Sensors(0.1, 0.025, 0.3, 0.0001)
H100 = Sensors(0.1, 0.025, 0.4, 0.0045)
GENERATIONS = {"v100": V100, "a100": A100, "h100": H100}


def random_steps(rng: random.Random, seconds: float) -> Curve:
    points = [(0.0, rng.uniform(60, 120))]
    while points[-1][0] < seconds:
        t = points[-1][0] + rng.expovariate(1 / 0.7) + 0.02
        points += [(t, points[-1][1]), (t, rng.uniform(60, 650))]
    return Curve(tuple(points))


def random_ramps(rng: random.Random, seconds: float) -> Curve:
    points = [(0.0, rng.uniform(60, 300))]
    while points[-1][0] < seconds:
        points.append((points[-1][0] + rng.uniform(0.1, 2), rng.uniform(60, 650)))
    return Curve(tuple(points))


def random_bursts(rng: random.Random, seconds: float) -> Curve:
    """Flat decoding, interrupted by prefills that a sensor of 25 in 100 ms often does not see."""
    flat, burst, every, lasts = (
        rng.uniform(250, 420),
        rng.uniform(500, 690),
        rng.uniform(0.25, 1.5),
        rng.uniform(0.015, 0.08),
    )
    points, t = [(0.0, flat)], rng.uniform(0, every)
    while t < seconds:
        points += [(t, flat), (t, burst), (t + lasts, burst), (t + lasts, flat)]
        t += every * rng.uniform(0.8, 1.2) + lasts
    return Curve((*points, (t + 1, flat)))


def work(rng: random.Random, seconds: float, start: float, end: float) -> Curve:
    """Idle; from a few ms after the window's begin a prefill, then decoding until just before its end; idle again."""
    idle, burst, flat = rng.uniform(70, 125), rng.uniform(500, 690), rng.uniform(300, 450)
    begin, stop, prefilled = start + rng.uniform(0, 0.01), end - rng.uniform(0, 0.01), rng.uniform(0.02, 0.15)
    return Curve((
        (0.0, idle), (begin, idle), (begin, burst), (begin + prefilled, burst), (begin + prefilled, flat), (stop, flat),
        (stop, idle), (seconds, idle),
    ))  # fmt: skip
