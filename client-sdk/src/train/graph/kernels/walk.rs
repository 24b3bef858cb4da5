//! Several tensors visited together, axis by axis: broadcasting, transposition, slices and reductions.

/// Distance between neighbours along each axis of a dense tensor.
pub(in crate::train::graph) fn dense(shape: &[usize]) -> Vec<isize> {
    let mut steps = vec![0; shape.len()];
    let mut step = 1;
    for (axis, &size) in shape.iter().enumerate().rev() {
        steps[axis] = step;
        step *= size.cast_signed();
    }
    steps
}

/// The same for a tensor that is repeated to a shape of higher rank or larger sizes: 0 along repeated axes.
pub(in crate::train::graph) fn repeated(shape: &[usize], to: &[usize]) -> Vec<isize> {
    let added = to.len() - shape.len();
    let own = dense(shape);
    (0..to.len()).map(|axis| if axis < added || shape[axis - added] == 1 { 0 } else { own[axis - added] }).collect()
}

/// The axes along which `N` tensors are visited together.
pub(in crate::train::graph) struct Walk<const N: usize> {
    sizes: Vec<usize>,
    /// For each axis and tensor, the distance between neighbours.
    steps: Vec<[isize; N]>,
    start: [usize; N],
}

impl<const N: usize> Walk<N> {
    /// Axes of these sizes, outermost first. Axes that lie behind each other in every tensor are joined.
    pub(in crate::train::graph) fn new(sizes: &[usize], steps: [&[isize]; N]) -> Self {
        let mut walk = Self { sizes: Vec::new(), steps: Vec::new(), start: [0; N] };
        for (axis, &size) in sizes.iter().enumerate().filter(|(_, size)| **size != 1) {
            let own: [isize; N] = std::array::from_fn(|tensor| steps[tensor][axis]);
            let is_behind = walk
                .steps
                .last()
                .is_some_and(|outer| (0..N).all(|tensor| outer[tensor] == own[tensor] * size.cast_signed()));
            match (walk.sizes.last_mut(), walk.steps.last_mut()) {
                (Some(outer), Some(step)) if is_behind => (*outer, *step) = (*outer * size, own),
                (_, _) => {
                    walk.sizes.push(size);
                    walk.steps.push(own);
                }
            }
        }
        if walk.sizes.is_empty() {
            walk.sizes.push(1);
            walk.steps.push([0; N]);
        }
        walk
    }

    /// The same, from another position of a tensor.
    pub(in crate::train::graph) fn from(mut self, tensor: usize, start: usize) -> Self {
        self.start[tensor] = start;
        self
    }

    /// Distances between neighbours within a run.
    pub(in crate::train::graph) fn inner(&self) -> [isize; N] {
        self.steps.last().copied().unwrap_or([0; N])
    }

    /// Calls `visit` with the positions at which each run along the innermost axis begins, and the run's length.
    pub(in crate::train::graph) fn runs(&self, mut visit: impl FnMut([usize; N], usize)) {
        let Some((&length, outer)) = self.sizes.split_last() else { return };
        let mut at = self.start.map(usize::cast_signed);
        let mut index = [0_usize; graph::MAX_RANK];
        loop {
            // Every position is inside its tensor, so none is negative.
            visit(at.map(isize::cast_unsigned), length);
            let mut axis = outer.len();
            loop {
                let Some(inner) = axis.checked_sub(1) else { return };
                axis = inner;
                index[axis] += 1;
                let steps = &self.steps[axis];
                if index[axis] < outer[axis] {
                    (0..N).for_each(|tensor| at[tensor] += steps[tensor]);
                    break;
                }
                index[axis] = 0;
                let back = outer[axis].cast_signed() - 1;
                (0..N).for_each(|tensor| at[tensor] -= steps[tensor] * back);
            }
        }
    }
}

/// The position `step` further, `count` times.
pub(in crate::train::graph) fn moved(from: usize, step: isize, count: usize) -> usize {
    from.wrapping_add_signed(step.wrapping_mul(count.cast_signed()))
}

/// Copies the elements of `from` (tensor 1) to `to` (tensor 0).
pub(in crate::train::graph) fn copy<T: Copy>(walk: &Walk<2>, to: &mut [T], from: &[T]) {
    let [to_step, from_step] = walk.inner();
    walk.runs(|[target, source], length| match (to_step, from_step) {
        // A call costs more than a short copy.
        (1, 1) if length < 64 => {
            let source = &from[source..source + length];
            to[target..target + length].iter_mut().zip(source).for_each(|(to, from)| *to = *from);
        }
        (1, 1) => to[target..target + length].copy_from_slice(&from[source..source + length]),
        (1, 0) => to[target..target + length].fill(from[source]),
        (_, _) => {
            for index in 0..length {
                to[moved(target, to_step, index)] = from[moved(source, from_step, index)];
            }
        }
    });
}

/// Adds the elements of tensor 0 to those of tensor 1, the reverse of [`copy`]: repeated elements are summed.
pub(in crate::train::graph) fn add_back(walk: &Walk<2>, from: &[f32], to: &mut [f32]) {
    let [from_step, to_step] = walk.inner();
    walk.runs(|[source, target], length| match (from_step, to_step) {
        (1, 1) => {
            for (to, from) in to[target..target + length].iter_mut().zip(&from[source..source + length]) {
                *to += from;
            }
        }
        (1, 0) => to[target] += from[source..source + length].iter().sum::<f32>(),
        (_, _) => {
            for index in 0..length {
                to[moved(target, to_step, index)] += from[moved(source, from_step, index)];
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_transposes_and_repeats() {
        let from: Vec<f32> = (0_u8..6).map(f32::from).collect();
        let mut to = vec![0.0; 6];
        copy(&Walk::new(&[3, 2], [&dense(&[3, 2]), &[1, 3]]), &mut to, &from);
        assert_eq!(to, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let mut wide = vec![0.0; 6];
        let walk = Walk::new(&[2, 3], [&dense(&[2, 3]), &repeated(&[3], &[2, 3])]);
        copy(&walk, &mut wide, &from[..3]);
        assert_eq!(wide, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        let mut sums = vec![0.0; 3];
        add_back(&walk, &from, &mut sums);
        assert_eq!(sums, [3.0, 5.0, 7.0]);
    }

    #[test]
    fn walk_goes_backwards_and_joins_axes() {
        let from = [1.0, 2.0, 3.0, 4.0_f32];
        let mut to = [0.0; 2];
        copy(&Walk::new(&[2], [&[1], &[-2]]).from(1, 3), &mut to, &from);
        assert_eq!(to, [4.0, 2.0]);
        let steps = dense(&[2, 3, 4]);
        assert_eq!(Walk::new(&[2, 3, 4], [&steps, &steps]).sizes, [24]);
    }
}
