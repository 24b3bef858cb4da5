//! The privacy argument in types: an exact sum cannot be printed, copied, stored or decoded, but a noised sum can. Only functions in this
//! folder convert one to the other, and their names state how.

use std::io::{self, Read, Write};

use rand::CryptoRng;

use super::DiscreteGaussian;
use super::mechanisms::banded::BandedNoise;
use super::mechanisms::noise::{self, NoiseError, NoiseShares, TreeNoise};
use super::mechanisms::opendp::{OpenDpError, OpenDpGaussian};
use crate::parameters::MAX_PARAMETERS;

/// Sum of the participants' quantized updates, modulo 2^b, as produced by unmasking, or a slice of its words. It deliberately lacks
/// `Debug`, `Clone` and serialization: it exists only in the memory of the one step that releases it.
pub struct ExactSum(NoisedSum);

/// A sum that may be stored and published, or a slice of its words.
#[derive(Clone, PartialEq, Eq)]
pub struct NoisedSum {
    words: Vec<u32>,
    modulus_bits: u8,
    participants: u32,
}

/// Reasons words are not a sum, or bytes not a stored one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SumError {
    /// This modulus is not supported by any codec.
    #[error("a sum is modulo 2^16 to 2^32, not 2^{0}")]
    ModulusBits(u8),
    /// A word is not below the modulus.
    #[error("word {index} of the sum is not below 2^{modulus_bits}")]
    WordTooLarge { index: usize, modulus_bits: u8 },
    /// A sum without participants and without noise.
    #[error("a sum needs at least one participant, or noise")]
    NoParticipants,
    /// Zero words, or more than a model can have.
    #[error("{0} words are not a sum: 1 to 2^29 are possible")]
    Length(usize),
    /// Not written by [`NoisedSum::to_bytes`], or by an unknown version.
    #[error("these bytes are not a stored sum of version {VERSION}")]
    Format,
    /// Truncated, or followed by extra bytes.
    #[error("a stored sum of {expected} bytes was expected, {got} are there")]
    Truncated {
        /// Length according to the header.
        expected: usize,
        got: usize,
    },
}

/// Twice the largest model: room for weight and metrics.
const MAX_WORDS: usize = 1 << 29;
const _: () = assert!(MAX_WORDS as u64 == 2 * MAX_PARAMETERS);
const MAGIC: [u8; 4] = *b"TSUM";
const VERSION: u8 = 1;
/// Number of words converted at once.
const PIECE: usize = 1 << 14;

/// Header of a stored sum: the number and kind of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumHeader {
    words: usize,
    modulus_bits: u8,
    participants: u32,
}

impl SumHeader {
    /// Length in bytes: magic, version, modulus bits, two zeros, participants and words as little-endian `u32`.
    pub const BYTES: usize = 16;

    /// The header of a sum of `words` words modulo 2^`modulus_bits`.
    ///
    /// # Errors
    /// [`SumError::ModulusBits`] and [`SumError::Length`].
    pub fn new(words: usize, modulus_bits: u8, participants: u32) -> Result<Self, SumError> {
        if !(16..=32).contains(&modulus_bits) {
            return Err(SumError::ModulusBits(modulus_bits));
        }
        if words == 0 || words > MAX_WORDS {
            return Err(SumError::Length(words));
        }
        Ok(Self { words, modulus_bits, participants })
    }

    /// Number of words of the whole sum, 1 to 2^29.
    #[must_use]
    pub fn words(self) -> usize {
        self.words
    }

    /// Bits of the modulus, 16 to 32.
    #[must_use]
    pub fn modulus_bits(self) -> u8 {
        self.modulus_bits
    }

    /// Number of updates in the sum; 0 if it is noise alone.
    #[must_use]
    pub fn participants(self) -> u32 {
        self.participants
    }

    /// Size of the stored sum, header included.
    #[must_use]
    pub fn stored_bytes(self) -> usize {
        Self::BYTES + 4 * self.words
    }

    /// The header as it is stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&[VERSION, self.modulus_bits]);
        bytes[8..12].copy_from_slice(&self.participants.to_le_bytes());
        // `new` keeps the length below 2^30.
        bytes[12..].copy_from_slice(&u32::try_from(self.words).unwrap_or(u32::MAX).to_le_bytes());
        bytes
    }

    /// Reads the header of a stored sum.
    ///
    /// # Errors
    /// [`SumError::Format`], [`SumError::ModulusBits`] and [`SumError::Length`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self, SumError> {
        let (fields, _) = bytes.as_chunks::<4>();
        let modulus_bits = fields[1][1];
        if fields[0] != MAGIC || fields[1] != [VERSION, modulus_bits, 0, 0] {
            return Err(SumError::Format);
        }
        let words = usize::try_from(u32::from_le_bytes(fields[3])).map_err(|_| SumError::Format)?;
        Self::new(words, modulus_bits, u32::from_le_bytes(fields[2]))
    }

    /// Reads the slice of `words` words from word `start` on, where the stored sum stands.
    ///
    /// # Errors
    /// The file's, in particular where it ends too early; within, [`SumError::Length`] for a slice beyond the sum's end and
    /// [`SumError::WordTooLarge`].
    pub fn read_words(
        self,
        stored: &mut (impl Read + ?Sized),
        start: usize,
        words: usize,
    ) -> io::Result<Result<NoisedSum, SumError>> {
        if start.checked_add(words).is_none_or(|end| end > self.words) {
            return Ok(Err(SumError::Length(words)));
        }
        let (mut read, mut piece) = (Vec::with_capacity(words), vec![0; 4 * PIECE.min(words)]);
        while read.len() < words {
            let piece = &mut piece[..4 * PIECE.min(words - read.len())];
            stored.read_exact(piece)?;
            read.extend(piece.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)));
        }
        Ok(NoisedSum::checked(read, self.modulus_bits, self.participants).map_err(|error| match error {
            SumError::WordTooLarge { index, modulus_bits } => {
                SumError::WordTooLarge { index: start + index, modulus_bits }
            }
            other => other,
        }))
    }
}

impl ExactSum {
    /// # Errors
    /// Any [`SumError`] except the two about bytes.
    pub fn new(words: Vec<u32>, modulus_bits: u8, participants: u32) -> Result<Self, SumError> {
        if participants == 0 {
            return Err(SumError::NoParticipants);
        }
        NoisedSum::checked(words, modulus_bits, participants).map(Self)
    }

    /// The sum of zero updates: all zeros. A randomly drawn cohort may be empty; its noise is released nevertheless, because an empty
    /// cohort must not be revealed.
    ///
    /// # Errors
    /// [`SumError::Length`] and [`SumError::ModulusBits`].
    pub fn of_nobody(words: usize, modulus_bits: u8) -> Result<Self, SumError> {
        if words > MAX_WORDS {
            return Err(SumError::Length(words));
        }
        NoisedSum::checked(vec![0; words], modulus_bits, 0).map(Self)
    }

    /// Adds the coordinator's noise, one draw per word. Once per round: a second draw would be a second release. The slices of a sum, in
    /// order and with one generator, get the same draws as the whole sum.
    #[must_use]
    pub fn add_central_noise<R: CryptoRng + ?Sized>(mut self, noise: &DiscreteGaussian, rng: &mut R) -> NoisedSum {
        let bits = self.0.modulus_bits;
        for word in &mut self.0.words {
            *word = noise::add(*word, noise.sample(rng), bits);
        }
        self.0
    }

    /// Adds noise drawn by OpenDP from the system's generator. The draw cannot be repeated: store the result before
    /// anybody sees it, since a second draw would be a second release.
    ///
    /// # Errors
    /// [`OpenDpError::Library`] without entropy; the exact sum is then lost.
    pub fn add_opendp_noise(mut self, noise: OpenDpGaussian) -> Result<NoisedSum, OpenDpError> {
        noise.add_to(&mut self.0.words, self.0.modulus_bits)?;
        Ok(self.0)
    }

    /// Adds the noise of this release along a tree; to slices of the sum, in order.
    #[must_use]
    pub fn add_tree_noise(mut self, noise: &mut TreeNoise) -> NoisedSum {
        let bits = self.0.modulus_bits;
        noise.add_to(&mut self.0.words, bits);
        self.0
    }

    /// Adds the noise of this release along a banded matrix; to slices of the sum, in order.
    #[must_use]
    pub fn add_banded_noise(mut self, noise: &mut BandedNoise) -> NoisedSum {
        let bits = self.0.modulus_bits;
        noise.add_to(&mut self.0.words, bits);
        self.0
    }

    /// Releases a sum to which each participant added a share of the noise, if there are as many participants as the
    /// noise assumes.
    ///
    /// # Errors
    /// [`NoiseError::CohortTooSmall`]; the sum is dropped and cannot be released any other way.
    pub fn release_noised_by_participants(self, shares: &NoiseShares) -> Result<NoisedSum, NoiseError> {
        shares.noise_of(self.0.participants)?;
        Ok(self.0)
    }

    /// Declares the exact sum public, for tasks without a privacy mechanism. The caller decides to omit noise; task, API and command line
    /// show this.
    #[must_use]
    pub fn release_without_noise(self) -> NoisedSum {
        self.0
    }
}

impl NoisedSum {
    fn checked(words: Vec<u32>, modulus_bits: u8, participants: u32) -> Result<Self, SumError> {
        SumHeader::new(words.len(), modulus_bits, participants)?;
        let largest = u32::MAX >> (32 - u32::from(modulus_bits));
        match words.iter().position(|&word| word > largest) {
            Some(index) => Err(SumError::WordTooLarge { index, modulus_bits }),
            None => Ok(Self { words, modulus_bits, participants }),
        }
    }

    /// The sum, modulo 2^[`modulus_bits`](Self::modulus_bits).
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Bits of the modulus, 16 to 32.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        self.modulus_bits
    }

    /// Number of updates in the sum; 0 if it is noise alone.
    #[must_use]
    pub fn participants(&self) -> u32 {
        self.participants
    }

    /// The header of a sum of these words.
    #[must_use]
    pub fn header(&self) -> SumHeader {
        let Self { ref words, modulus_bits, participants } = *self;
        SumHeader { words: words.len(), modulus_bits, participants }
    }

    /// Serializes the sum for storage: the header, then the words, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.header().stored_bytes());
        bytes.extend_from_slice(&self.header().to_bytes());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Writes the words as they are stored, without the header: those of the slices of a sum, in order, follow the whole
    /// sum's.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_words(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let mut piece = Vec::with_capacity(4 * PIECE.min(self.words.len()));
        for words in self.words.chunks(PIECE) {
            piece.clear();
            piece.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            out.write_all(&piece)?;
        }
        Ok(())
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// Any [`SumError`]; the length is checked before anything is allocated.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SumError> {
        let (header, mut body) = bytes.split_first_chunk().ok_or(SumError::Format)?;
        let header = SumHeader::from_bytes(*header)?;
        let (expected, got) = (header.stored_bytes(), bytes.len());
        if got != expected {
            return Err(SumError::Truncated { expected, got });
        }
        let sum = header.read_words(&mut body, 0, header.words);
        sum.unwrap_or(Err(SumError::Truncated { expected, got }))
    }
}

/// Shows sizes only: the words are public, but a million of them do not belong in a log.
impl std::fmt::Debug for NoisedSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoisedSum")
            .field("words", &self.words.len())
            .field("modulus_bits", &self.modulus_bits)
            .field("participants", &self.participants)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::marker::PhantomData;

    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::super::Sigma;
    use super::*;

    trait Otherwise {
        const _HAS: bool = false;
    }

    /// Whether a type has a trait: the inherent constant exists only if so, and then hides the trait's. The underscore
    /// allows it to be unused.
    macro_rules! has {
        ($type:ty: $($bound:tt)+) => {{
            struct Probe<T>(PhantomData<T>);
            impl<T> Otherwise for Probe<T> {}
            impl<T: $($bound)+> Probe<T> { const _HAS: bool = true; }
            <Probe<$type>>::_HAS
        }};
    }

    #[test]
    fn an_exact_sum_can_be_neither_shown_nor_copied_nor_written() {
        // Control: the probe does find these traits where they exist.
        assert!(has!(NoisedSum: Debug));
        assert!(has!(NoisedSum: Clone));
        assert!(has!(u32: serde::Serialize));

        assert!(!has!(ExactSum: Debug));
        assert!(!has!(ExactSum: std::fmt::Display));
        assert!(!has!(ExactSum: Clone));
        assert!(!has!(ExactSum: serde::Serialize));
        assert!(!has!(ExactSum: AsRef<[u32]>));
        assert!(!has!(ExactSum: std::ops::Deref<Target = NoisedSum>));
        assert!(!has!(ExactSum: std::ops::Deref<Target = [u32]>));
        assert!(!has!(ExactSum: Into<Vec<u32>>));
    }

    fn sum() -> NoisedSum {
        ExactSum::new(vec![1, 0xfffff, 7], 20, 3).map(ExactSum::release_without_noise).unwrap()
    }

    #[test]
    fn bytes_are_as_documented_and_come_back() {
        let bytes = sum().to_bytes();
        assert_eq!(bytes[..16], *b"TSUM\x01\x14\0\0\x03\0\0\0\x03\0\0\0");
        assert_eq!(bytes[16..], *b"\x01\0\0\0\xff\xff\x0f\0\x07\0\0\0");
        assert_eq!(NoisedSum::from_bytes(&bytes).unwrap(), sum());
    }

    #[test]
    fn refuses_bytes_that_are_no_stored_sum() {
        let bytes = sum().to_bytes();
        for length in 0..bytes.len() {
            assert!(NoisedSum::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(NoisedSum::from_bytes(&longer), Err(SumError::Truncated { expected: 28, got: 29 }));
        let with = |index: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[index] = value;
            NoisedSum::from_bytes(&bytes).unwrap_err()
        };
        assert_eq!(with(0, b'X'), SumError::Format);
        assert_eq!(with(4, 2), SumError::Format);
        assert_eq!(with(5, 33), SumError::ModulusBits(33));
        assert_eq!(with(6, 1), SumError::Format);
        assert_eq!(with(12, 4), SumError::Truncated { expected: 32, got: 28 });
        assert_eq!(with(15, 0xff), SumError::Length(0xff00_0003));
        assert_eq!(with(22, 0x1f), SumError::WordTooLarge { index: 1, modulus_bits: 20 });
    }

    #[test]
    fn slices_of_any_length_are_noised_and_stored_like_the_whole() {
        let words: Vec<u32> = (0..1000_u32).map(|word| word.wrapping_mul(77_777) & 0xf_ffff).collect();
        let noise = DiscreteGaussian::new(Sigma::at_least(300.0).unwrap());
        let seeds = || super::super::PlaceSeeds::up_to(3, 6);
        let whole = || ExactSum::new(words.clone(), 20, 4).unwrap();
        let in_slices = |length: usize, noise: &mut dyn FnMut(ExactSum) -> NoisedSum| {
            let mut stored = whole().0.header().to_bytes().to_vec();
            for slice in words.chunks(length) {
                noise(ExactSum::new(slice.to_vec(), 20, 4).unwrap()).write_words(&mut stored).unwrap();
            }
            stored
        };
        let tree = || TreeNoise::new(seeds(), Sigma::at_least(300.0).unwrap());
        let banded = || BandedNoise::new(seeds(), Sigma::at_least(300.0).unwrap(), 3).unwrap();
        let central = whole().add_central_noise(&noise, &mut ChaCha20Rng::from_seed([1; 32]));
        for length in [1, 7, 64, 255, 256, 999, 1000] {
            let mut rng = ChaCha20Rng::from_seed([1; 32]);
            let stored = in_slices(length, &mut |slice| slice.add_central_noise(&noise, &mut rng));
            assert!(stored == central.to_bytes(), "{length}");
            let (mut of_tree, mut of_bands) = (tree(), banded());
            let stored = in_slices(length, &mut |slice| slice.add_tree_noise(&mut of_tree));
            assert!(stored == whole().add_tree_noise(&mut tree()).to_bytes(), "{length}");
            let stored = in_slices(length, &mut |slice| slice.add_banded_noise(&mut of_bands));
            assert!(stored == whole().add_banded_noise(&mut banded()).to_bytes(), "{length}");

            let bytes = central.to_bytes();
            let mut rest = &bytes[SumHeader::BYTES..];
            let mut read = Vec::new();
            for start in (0..words.len()).step_by(length) {
                let slice = central.header().read_words(&mut rest, start, length.min(words.len() - start));
                read.extend_from_slice(slice.unwrap().unwrap().words());
            }
            assert!(read == central.words() && rest.is_empty(), "{length}");
        }
        let beyond = central.header().read_words(&mut &[0; 8][..], 999, 2).unwrap();
        assert_eq!(beyond.err(), Some(SumError::Length(2)));
        let large = central.header().read_words(&mut &[0xff; 8][..], 7, 2).unwrap();
        assert_eq!(large.err(), Some(SumError::WordTooLarge { index: 7, modulus_bits: 20 }));
        assert!(central.header().read_words(&mut &[0; 7][..], 7, 2).is_err());
    }

    #[test]
    fn the_sum_of_nobody_is_noise_alone() {
        let noise = DiscreteGaussian::new(Sigma::at_least(9.0).unwrap());
        let released =
            ExactSum::of_nobody(4, 20).unwrap().add_central_noise(&noise, &mut ChaCha20Rng::from_seed([1; 32]));
        assert_eq!((released.participants(), released.words().len()), (0, 4));
        assert!(released.words().iter().any(|&word| word != 0));
        assert!(NoisedSum::from_bytes(&released.to_bytes()).unwrap() == released);
        assert_eq!(ExactSum::of_nobody(0, 20).err(), Some(SumError::Length(0)));
        assert_eq!(ExactSum::of_nobody(MAX_WORDS + 1, 20).err(), Some(SumError::Length(MAX_WORDS + 1)));
        assert_eq!(ExactSum::of_nobody(4, 33).err(), Some(SumError::ModulusBits(33)));
    }

    #[test]
    fn refuses_words_that_are_no_sum() {
        let error = |words: Vec<u32>, bits, participants| ExactSum::new(words, bits, participants).err();
        assert_eq!(error(vec![1], 15, 1), Some(SumError::ModulusBits(15)));
        assert_eq!(error(vec![1], 16, 0), Some(SumError::NoParticipants));
        assert_eq!(error(vec![], 16, 1), Some(SumError::Length(0)));
        assert_eq!(error(vec![1, 1 << 16], 16, 1), Some(SumError::WordTooLarge { index: 1, modulus_bits: 16 }));
        assert!(error(vec![u32::MAX], 32, 1).is_none());
    }

    #[test]
    fn central_noise_is_added_to_every_word_modulo() {
        let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(2);
        let noise = DiscreteGaussian::new(crate::privacy::Sigma::at_least(40.0).unwrap());
        let exact = ExactSum::new(vec![0xf_fff0; 10_000], 20, 3).unwrap();
        let noised = exact.add_central_noise(&noise, &mut rng);
        assert!(noised.words().iter().all(|&word| word < 1 << 20));
        let residual = |&word: &u32| {
            let centred = (i64::from(word) - 0xf_fff0 + (1 << 19)).rem_euclid(1 << 20) - (1 << 19);
            centred as f64
        };
        let variance = noised.words().iter().map(residual).map(|x| x * x).sum::<f64>() / 10_000.0;
        // 1600, standard error 23; and words have wrapped.
        assert!((variance - 1600.0).abs() < 100.0, "{variance}");
        assert!(noised.words().iter().any(|&word| word < 100));
    }

    #[test]
    fn too_few_survivors_release_nothing() {
        let shares = NoiseShares::skellam(100.0, 4, 1).unwrap();
        let exact = |participants| ExactSum::new(vec![1], 20, participants).unwrap();
        let error = exact(3).release_noised_by_participants(&shares).unwrap_err();
        assert_eq!(error, NoiseError::CohortTooSmall { survivors: 3, needed: 4 });
        assert!(exact(4).release_noised_by_participants(&shares).is_ok());
    }
}
