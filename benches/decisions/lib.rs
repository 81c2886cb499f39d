//! Only benchmarks: see `benches/`.
