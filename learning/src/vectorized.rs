//! Passes over many numbers, compiled for the instructions that the processor has.

use pulp::{Arch, Simd, WithSimd};

struct Pass<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Pass<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}

/// Runs a pass, which must be `#[inline(always)]`.
///
/// [`Arch::dispatch`] takes a closure as a function that is called once. Where the closure could be called again, that function is
/// a wrapper which need not be inlined, and then all of it is compiled for the oldest processor.
#[inline(always)]
pub(crate) fn vectorized<R>(pass: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Pass(pass))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_runs_once_and_yields_what_it_computes() {
        let mut runs = 0;
        let sum: u32 = vectorized(
            #[inline(always)]
            || {
                runs += 1;
                (1..=10).sum()
            },
        );
        assert_eq!((runs, sum), (1, 55));
    }
}
