//! Elias-Fano code: ascending positions in as few bits as a fixed length allows (Elias 1974, Fano 1971).
//!
//! Of `k` positions below `d` the lowest `l = floor(log2(d / k))` bits are stored as they are, the rest as one bit
//! string: for position `i` with upper part `h` the bit `h + i` is set. It takes at most two bits per position more
//! than `log2(d / k)`; each set of positions has one code, whose length depends on `k` and `d` only.

/// The code of `k` positions below `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SparseIndex {
    of: usize,
    k: usize,
    low_bits: u32,
}

impl SparseIndex {
    /// `k` is 1 to `of`, which is at most 2^28.
    pub(super) fn new(of: usize, k: usize) -> Self {
        Self { of, k, low_bits: (of / k).ilog2() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.low_bytes() + self.upper_bits().div_ceil(8)
    }

    fn low_bytes(&self) -> usize {
        (self.k * self.low_bits as usize).div_ceil(8)
    }

    fn upper_bits(&self) -> usize {
        ((self.of - 1) >> self.low_bits) + self.k
    }

    /// Encodes `k` ascending positions below `d`.
    pub(super) fn encode(&self, positions: &[usize], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.bytes(), 0);
        let (low, upper) = out[start..].split_at_mut(self.low_bytes());
        let width = self.low_bits as usize;
        for (index, &position) in positions.iter().enumerate() {
            for bit in (0..width).filter(|bit| (position >> bit) & 1 == 1) {
                set(low, index * width + bit);
            }
            set(upper, (position >> width) + index);
        }
    }

    /// Decodes the positions; `None` if these bytes, of which there are [`bytes`](Self::bytes), are not a valid code.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<Vec<usize>> {
        let (low, upper) = bytes.split_at_checked(self.low_bytes())?;
        let width = self.low_bits as usize;
        if padded(low, self.k * width) || padded(upper, self.upper_bits()) {
            return None;
        }
        let mut positions: Vec<usize> = Vec::with_capacity(self.k);
        for at in (0..self.upper_bits()).filter(|&at| get(upper, at)) {
            let index = positions.len();
            if index == self.k {
                return None;
            }
            let rest = (0..width).fold(0, |rest, bit| rest | usize::from(get(low, index * width + bit)) << bit);
            let position = (at - index) << width | rest;
            if position >= self.of || positions.last().is_some_and(|&last| last >= position) {
                return None;
            }
            positions.push(position);
        }
        (positions.len() == self.k).then_some(positions)
    }
}

fn set(bits: &mut [u8], at: usize) {
    bits[at / 8] |= 1 << (at % 8);
}

fn get(bits: &[u8], at: usize) -> bool {
    (bits[at / 8] >> (at % 8)) & 1 == 1
}

/// Whether a bit after the last used one is set.
fn padded(bits: &[u8], used: usize) -> bool {
    (used..8 * bits.len()).any(|at| get(bits, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::sample::Sample;

    #[test]
    fn every_set_of_positions_comes_back_in_few_bits() {
        for (of, k) in [(1, 1), (2, 1), (2, 2), (7, 3), (8, 8), (1000, 1), (7850, 79), (159_010, 1590), (5000, 2501)] {
            let code = SparseIndex::new(of, k);
            for seed in 0..5 {
                let positions: Vec<usize> = Sample::new(&[seed; 32], of, k).collect();
                let mut bytes = Vec::new();
                code.encode(&positions, &mut bytes);
                assert_eq!(bytes.len(), code.bytes());
                assert_eq!(code.decode(&bytes).unwrap(), positions, "{k} of {of}");
            }
            let bits_each = 8.0 * code.bytes() as f64 / k as f64;
            assert!(bits_each <= (of as f64 / k as f64).log2() + 2.0 + 16.0 / k as f64, "{bits_each}");
            let (first, last) = ((0..k).collect::<Vec<_>>(), (of - k..of).collect::<Vec<_>>());
            for positions in [first, last] {
                let mut bytes = Vec::new();
                code.encode(&positions, &mut bytes);
                assert_eq!(code.decode(&bytes).unwrap(), positions, "{k} of {of}");
            }
        }
    }

    #[test]
    fn each_code_is_of_one_set_only() {
        // All codes of 2 of 9 positions: 36 sets, and every other bit pattern is refused.
        let code = SparseIndex::new(9, 2);
        assert_eq!(code.bytes(), 2);
        let valid = (0..=u16::MAX).filter_map(|bits| {
            let bytes = bits.to_le_bytes();
            code.decode(&bytes).inspect(|positions| {
                let mut again = Vec::new();
                code.encode(positions, &mut again);
                assert_eq!(again, bytes);
            })
        });
        assert_eq!(valid.count(), 36);
    }
}
