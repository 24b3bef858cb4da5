//! Two matrix products on borrowed `f32` slices, for one core.
//!
//! Unlike a general library, this exploits the layers' memory layout (an image needs no im2col, a weight matrix stays
//! packed between steps), reuses buffers, and gives the same bits on each run. Both products work on a *panel*: `width`
//! adjacent columns (16 or 32) of the right-hand operand or of the result, stored row after row. [`pulp::Arch`] selects
//! the instruction set once, from those that the CPU offers.
//!
//! The products run on the calling thread, without allocation.

use pulp::{Arch, Simd, WithSimd};

/// Columns of a wide panel; narrower results use [`NARROW`].
pub(in crate::train) const WIDE: usize = 32;
/// Columns of a narrow panel: the widest vector register.
pub(in crate::train) const NARROW: usize = 16;
/// Number of panel rows used for all rows of the result before the next ones: 32 KiB, which stay in the first-level
/// cache.
const DEPTH: usize = 256;

/// Row `i` of the left operand starts at `start + (i / group) * group_step + (i % group) * step`.
#[derive(Clone, Copy)]
pub(in crate::train) struct Rows {
    /// Offset of row 0.
    pub(in crate::train) start: usize,
    /// Number of equidistant rows in a group, for example the pixels of one image row; 0 for all rows.
    pub(in crate::train) group: usize,
    /// Distance between groups.
    pub(in crate::train) group_step: usize,
    /// Distance between rows of a group.
    pub(in crate::train) step: usize,
}

impl Rows {
    /// All rows at this distance.
    pub(in crate::train) fn even(step: usize) -> Self {
        Self { start: 0, group: 0, group_step: 0, step }
    }

    #[inline(always)]
    fn offset(&self, row: usize) -> usize {
        match row.checked_div(self.group) {
            None => self.start + row * self.step,
            Some(group) => self.start + group * self.group_step + (row - group * self.group) * self.step,
        }
    }
}

/// `C[m, width] (+)= A[m, segments * length] * B[segments * length, width]`, where a row of `A` is `segments` runs of
/// `length` adjacent numbers at distance `segment_step`. This covers a dense matrix, and a convolution that reads its
/// padded image in place.
pub(in crate::train) struct RowProduct<'a> {
    pub(in crate::train) a: &'a [f32],
    pub(in crate::train) rows: Rows,
    pub(in crate::train) segments: usize,
    pub(in crate::train) segment_step: usize,
    pub(in crate::train) length: usize,
    /// A panel: dense, row-major.
    pub(in crate::train) b: &'a [f32],
    pub(in crate::train) width: usize,
    /// Row `i` of the result starts at `i * c_step`.
    pub(in crate::train) c: &'a mut [f32],
    pub(in crate::train) c_step: usize,
    pub(in crate::train) m: usize,
}

/// `C[m, width] (+)= sum over t of A[t, ..m]^T * B[t, ..width]`, where `t` runs over `segments` times `length`
/// positions. This is a weight gradient: `t` counts examples, or the pixels of an image.
pub(in crate::train) struct OuterProduct<'a> {
    pub(in crate::train) a: &'a [f32],
    pub(in crate::train) a_start: usize,
    pub(in crate::train) a_segment: usize,
    pub(in crate::train) a_step: usize,
    pub(in crate::train) b: &'a [f32],
    pub(in crate::train) b_start: usize,
    pub(in crate::train) b_segment: usize,
    pub(in crate::train) b_step: usize,
    pub(in crate::train) segments: usize,
    pub(in crate::train) length: usize,
    pub(in crate::train) m: usize,
    pub(in crate::train) width: usize,
    /// A panel: dense, row-major.
    pub(in crate::train) c: &'a mut [f32],
    /// Whether to add to `c` instead of overwriting it.
    pub(in crate::train) accumulate: bool,
}

impl RowProduct<'_> {
    pub(in crate::train) fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

impl OuterProduct<'_> {
    pub(in crate::train) fn run(self, arch: Arch) {
        arch.dispatch(self);
    }
}

/// Calls `$kernel::<S, rows, vectors>` for blocks of the largest sizes that fit, with the result's block in registers.
macro_rules! cover {
    ($self:ident, $simd:ident, $kernel:ident $(, $extra:expr)*) => {{
        let mut column = 0;
        while column < $self.width {
            if column + 2 * S::F32_LANES <= $self.width {
                cover!(@rows $self, $simd, $kernel, column, 2 $(, $extra)*);
                column += 2 * S::F32_LANES;
            } else {
                cover!(@rows $self, $simd, $kernel, column, 1 $(, $extra)*);
                column += S::F32_LANES;
            }
        }
    }};
    (@rows $self:ident, $simd:ident, $kernel:ident, $column:ident, $vectors:literal $(, $extra:expr)*) => {{
        let mut row = 0;
        while row < $self.m {
            row += match $self.m - row {
                8.. if S::REGISTER_COUNT >= 32 => $self.$kernel::<S, 8, $vectors>($simd, row, $column $(, $extra)*),
                // Twelve sums of two vectors, two operands and a factor fill 16 registers.
                6.. => $self.$kernel::<S, 6, $vectors>($simd, row, $column $(, $extra)*),
                4.. => $self.$kernel::<S, 4, $vectors>($simd, row, $column $(, $extra)*),
                2.. => $self.$kernel::<S, 2, $vectors>($simd, row, $column $(, $extra)*),
                _ => $self.$kernel::<S, 1, $vectors>($simd, row, $column $(, $extra)*),
            };
        }
    }};
}

impl WithSimd for RowProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // About DEPTH rows of the panel at a time: several short segments, or part of a long one.
        let together = (DEPTH / self.length.max(1)).max(1);
        for segment in (0..self.segments).step_by(together) {
            let segments = together.min(self.segments - segment);
            for first in (0..self.length).step_by(DEPTH) {
                let run = Run { segment, segments, first, length: DEPTH.min(self.length - first) };
                cover!(self, simd, block, run);
            }
        }
    }
}

/// Part of the sums: `length` products from `first` on in each of `segments` segments from `segment` on.
#[derive(Clone, Copy)]
struct Run {
    segment: usize,
    segments: usize,
    first: usize,
    length: usize,
}

impl RowProduct<'_> {
    /// Adds `run` to rows `row..row + R` and `V` vectors of columns from `column` on. Returns `R`.
    #[inline(always)]
    fn block<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
        run: Run,
    ) -> usize {
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        let columns = V * S::F32_LANES;
        if run.segment > 0 || run.first > 0 {
            for (r, sums) in sums.iter_mut().enumerate() {
                let c = &self.c[(row + r) * self.c_step + column..][..columns];
                sums.copy_from_slice(S::as_simd_f32s(c).0);
            }
        }
        let mut starts = [0; R];
        for (r, start) in starts.iter_mut().enumerate() {
            *start = self.rows.offset(row + r) + run.first;
        }
        for segment in run.segment..run.segment + run.segments {
            let mut rows: [&[f32]; R] = [&[]; R];
            for r in 0..R {
                rows[r] = &self.a[starts[r] + segment * self.segment_step..][..run.length];
            }
            let b = &self.b[(segment * self.length + run.first) * self.width + column..];
            for t in 0..run.length {
                let b = S::as_simd_f32s(&b[t * self.width..][..columns]).0;
                for r in 0..R {
                    let a = simd.splat_f32s(rows[r][t]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_e_f32s(a, b[v], sums[r][v]);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut self.c[(row + r) * self.c_step + column..][..columns];
            S::as_mut_simd_f32s(c).0.copy_from_slice(sums);
        }
        R
    }
}

impl WithSimd for OuterProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        cover!(self, simd, block);
    }
}

impl OuterProduct<'_> {
    /// Rows `row..row + R` and `V` vectors of columns from `column` on. Returns `R`.
    #[inline(always)]
    fn block<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, row: usize, column: usize) -> usize {
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        let columns = V * S::F32_LANES;
        for segment in 0..self.segments {
            let a = &self.a[self.a_start + segment * self.a_segment + row..];
            let b = &self.b[self.b_start + segment * self.b_segment + column..];
            for t in 0..self.length {
                let a = &a[t * self.a_step..][..R];
                let b = S::as_simd_f32s(&b[t * self.b_step..][..columns]).0;
                for r in 0..R {
                    let a = simd.splat_f32s(a[r]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_e_f32s(a, b[v], sums[r][v]);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut self.c[(row + r) * self.width + column..][..columns];
            let c = S::as_mut_simd_f32s(c).0;
            for v in 0..V {
                c[v] = if self.accumulate { simd.add_f32s(c[v], sums[v]) } else { sums[v] };
            }
        }
        R
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPU's instruction sets, from least to most.
    fn archs() -> Vec<Arch> {
        let mut archs = vec![Arch::Scalar, Arch::new()];
        #[cfg(target_arch = "x86_64")]
        archs.extend(pulp::x86::V3::try_new().map(Arch::V3));
        archs
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7919 + 13) % 31) as f32 - 15.0).collect()
    }

    /// Small integers: every order of sums is exact, so every instruction set must give the same result.
    #[test]
    fn products_are_those_of_three_loops_with_any_instructions() {
        let (a, b) = (numbers(20_000), numbers(20_000));
        for arch in archs() {
            for (m, segments, length, width) in [(1, 1, 1, 16), (7, 3, 5, 32), (23, 1, 300, 16), (10, 9, 32, 32)] {
                let rows = Rows { start: 2, group: 4, group_step: 50, step: 3 };
                let mut c = vec![f32::NAN; m * width];
                let product = RowProduct {
                    a: &a,
                    rows,
                    segments,
                    segment_step: 40,
                    length,
                    b: &b,
                    width,
                    c: &mut c,
                    c_step: width,
                    m,
                };
                product.run(arch);
                for (index, value) in c.iter().enumerate() {
                    let (row, column) = (index / width, index % width);
                    let expected: f32 = (0..segments * length)
                        .map(|k| {
                            let at = 2 + row / 4 * 50 + row % 4 * 3 + k / length * 40 + k % length;
                            a[at] * b[k * width + column]
                        })
                        .sum();
                    assert_eq!(*value, expected, "{m} {segments} {length} {width} at {row} {column}");
                }
            }
            let (m, width, mut c) = (11, 32, vec![1.0; 11 * 32]);
            let product = OuterProduct {
                a: &a,
                a_start: 3,
                a_segment: 100,
                a_step: 2,
                b: &b,
                b_start: 5,
                b_segment: 200,
                b_step: 33,
                segments: 3,
                length: 6,
                m,
                width,
                c: &mut c,
                accumulate: true,
            };
            product.run(arch);
            for (index, value) in c.iter().enumerate() {
                let term = |t: usize| {
                    let (segment, t) = (t / 6, t % 6);
                    a[3 + segment * 100 + t * 2 + index / width] * b[5 + segment * 200 + t * 33 + index % width]
                };
                assert_eq!(*value, 1.0 + (0..18).map(term).sum::<f32>(), "{index}");
            }
        }
    }
}
