//! Mutations of an input: transmission errors, other versions and attacks. A pure function of the generator.

/// SplitMix64: small, and good enough to choose mutations.
pub struct Dice(u64);

impl Dice {
    /// Seeded with a number and a name, so targets have different streams.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self(name.bytes().fold(seed, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Maximum length of a generated input.
const LONGEST: usize = 1 << 16;

/// Boundary values.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x3ff,
    0x400,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX >> 3,
    u64::MAX,
];

/// Applies one to eight mutations to `input`; `other` is another input to splice from.
#[must_use]
pub fn mutate(input: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + dice.below(8).min(dice.below(8)) {
        change(&mut bytes, other, dice);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    if bytes.is_empty() {
        bytes.push(dice.next() as u8);
        return;
    }
    let at = dice.below(bytes.len());
    let run = 1 + dice.below(32).min(bytes.len() - at - 1);
    match dice.below(11) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => bytes[at] = dice.next() as u8,
        2 => bytes[at] = bytes[at].wrapping_add(if dice.below(2) == 0 { 1 } else { 255 }),
        3 => {
            let width = [1, 2, 4, 8][dice.below(4)].min(bytes.len() - at);
            let edge = EDGES[dice.below(EDGES.len())];
            let (big, little) = (edge.to_be_bytes(), edge.to_le_bytes());
            let source = if dice.below(2) == 0 { &big[8 - width..] } else { &little[..width] };
            bytes[at..at + width].copy_from_slice(source);
        }
        4 => drop(bytes.drain(at..at + run)),
        5 => {
            let again = bytes[at..at + run].to_vec();
            bytes.splice(at..at, again);
        }
        6 => drop(bytes.splice(at..at, (0..run).map(|_| dice.next() as u8)).collect::<Vec<_>>()),
        7 => bytes.truncate(at),
        8 if !other.is_empty() => {
            let from = dice.below(other.len());
            let piece = &other[from..other.len().min(from + 1 + dice.below(256))];
            let to = bytes.len().min(at + piece.len());
            bytes.splice(at..to, piece.iter().copied());
        }
        9 if !other.is_empty() => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[dice.below(other.len())..]);
        }
        _ => {
            let with = dice.below(bytes.len());
            bytes.swap(at, with);
        }
    }
}
