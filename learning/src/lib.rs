//! Clip, quantize, sum privately, optimize: the arithmetic both sides must agree on. Pure.

pub mod parameters;
