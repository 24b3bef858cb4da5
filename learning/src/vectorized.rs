//! Loops over many numbers, compiled for the instruction set of the processor at run time.

use pulp::{Arch, Simd, WithSimd};

struct Pass<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Pass<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}

/// Runs a loop, which must be `#[inline(always)]`.
///
/// [`Arch::dispatch`] takes a closure as a function that is called once. A closure that could be called again would be
/// wrapped in a function that need not be inlined, and everything would be compiled for the oldest processor.
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
