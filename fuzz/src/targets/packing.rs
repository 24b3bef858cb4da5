//! The packed form of a vector, whole and in pieces, and the inspection of an update without masks.

use learning::quantize::{Codec, QuantizationParams};
use secure_agg::modular::Modulus;
use secure_agg::packing::{Unpacker, pack, unpack};

/// One input: bits of the modulus, words, size of the pieces, then the packed words.
pub fn run(data: &[u8]) {
    let [bits, words, piece, packed @ ..] = data else { return };
    let (Ok(modulus), words) = (Modulus::new(16 + bits % 17), usize::from(*words)) else { return };
    let whole = unpack(packed, words, modulus);
    if let Ok(unpacked) = &whole {
        assert_eq!(pack(unpacked, modulus), packed, "a vector has one form");
        assert!(unpacked.iter().all(|word| *word <= modulus.max_word()));
    }
    let (mut unpacker, mut taken, mut fine) = (Unpacker::new(words, modulus), Vec::new(), true);
    for piece in packed.chunks(usize::from(*piece).max(1)) {
        fine &= unpacker.push(piece, |word| taken.push(word)).is_ok();
        if !fine {
            break;
        }
    }
    fine &= unpacker.finish().is_ok();
    assert_eq!(fine, whole.is_ok(), "pieces are judged like the whole");
    let Ok(unpacked) = whole else { return };
    assert_eq!(taken, unpacked);
    let params = QuantizationParams {
        parameters: words.saturating_sub(3).max(1),
        modulus_bits: modulus.bits(),
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 2,
        max_cohort: 4,
        metrics: 1,
    };
    if let Ok(codec) = Codec::new(params) {
        let mut inspector = codec.inspector();
        unpacked.iter().for_each(|word| inspector.push(*word));
        let _ = inspector.finish();
    }
}

/// One vector of each kind of modulus.
pub fn seeds() -> Vec<Vec<u8>> {
    [0u8, 4, 15, 16]
        .map(|bits| {
            let modulus = Modulus::new(16 + bits).unwrap();
            let words: Vec<u32> = (0u32..9).map(|word| modulus.reduce(word.wrapping_mul(0x9e37_79b9))).collect();
            [&[bits, 9, 5], pack(&words, modulus).as_slice()].concat()
        })
        .to_vec()
}
