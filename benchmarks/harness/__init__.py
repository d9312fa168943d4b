"""What the demo and the benchmarks share: sample photos, timed laps, and the usual loader to compare with."""
