//! Known answers of the mask definition, from an independent implementation.

use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign, WORDS_PER_NONCE};
use secure_agg::modular::Modulus;

#[derive(serde::Deserialize)]
struct Vectors {
    pair_key_1_2: String,
    self_key_1: String,
    pair_mask_words_0_16: Vec<u32>,
    pair_mask_words_block5: Vec<u32>,
    pair_mask_plane2_chunk3: Vec<u32>,
    self_mask_words_0_8: Vec<u32>,
    toy: Toy,
}

/// Participant 1 of a round of two: its input and its upload.
#[derive(serde::Deserialize)]
struct Toy {
    x1: Vec<u32>,
    y1: Vec<u32>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors/mask.json")).unwrap()
}

fn seed(key: &str) -> MaskSeed {
    let mut bytes = [0; 32];
    hex::decode_to_slice(key, &mut bytes).unwrap();
    MaskSeed::new(&mut bytes)
}

fn mask_words(key: &str, plane: Plane, offset: u64, len: usize) -> Vec<u32> {
    let mut plan = MaskPlan::new(plane, 4 * WORDS_PER_NONCE, Modulus::new(32).unwrap()).unwrap();
    plan.push(seed(key), Sign::Add);
    let mut words = vec![0; len];
    mask::apply(&plan, offset, &mut words).unwrap();
    words
}

#[test]
fn mask_words_are_those_of_the_specification() {
    let known = vectors();
    let pair = &known.pair_key_1_2;
    assert_eq!(mask_words(pair, Plane::Model, 0, 16), known.pair_mask_words_0_16);
    assert_eq!(mask_words(pair, Plane::Model, 80, 16), known.pair_mask_words_block5);
    assert_eq!(mask_words(pair, Plane::HomomorphicKey, 3 * WORDS_PER_NONCE, 8), known.pair_mask_plane2_chunk3);
    assert_eq!(mask_words(&known.self_key_1, Plane::Model, 0, 8), known.self_mask_words_0_8);
}

#[test]
fn a_word_depends_on_its_index_alone() {
    let known = vectors();
    for (index, expected) in known.pair_mask_words_0_16.iter().enumerate() {
        assert_eq!(mask_words(&known.pair_key_1_2, Plane::Model, index as u64, 1), [*expected]);
    }
}

#[test]
fn a_participant_masks_as_the_toy_round_does() {
    let Vectors { pair_key_1_2, self_key_1, toy, .. } = vectors();
    let mut plan = MaskPlan::new(Plane::Model, 8, Modulus::new(32).unwrap()).unwrap();
    plan.push(seed(&self_key_1), Sign::Add);
    plan.push(seed(&pair_key_1_2), Sign::Add);
    let mut y1 = toy.x1.clone();
    mask::apply(&plan, 0, &mut y1).unwrap();
    assert_eq!(y1, toy.y1);
}
