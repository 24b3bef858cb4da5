//! Plays: speakers, division of the text, and rejections.

use std::fs;
use std::path::Path;

use datasets::{DataError, Dataset, Federated, Text, text};

const PLAY: &str = "\
A title page, which nobody speaks.

ANNE:
abcdefgh
ijklmnop:

BOB:
xy

ANNE:
qrs

CARL:
0123456789";

fn load(play: impl AsRef<[u8]>, participants: usize, length: usize) -> Result<Federated, DataError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("input.txt"), play).unwrap();
    text::load(folder.path(), participants, length)
}

fn text(data: &Dataset) -> &Text {
    match data {
        Dataset::Text(data) => data,
        Dataset::Labelled(_) => panic!("a play is text"),
    }
}

/// The characters behind the numbers, known from the whole play.
fn spell(numbers: &[u32], play: &str) -> String {
    let mut alphabet: Vec<char> = play.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    numbers.iter().map(|&number| alphabet[number as usize]).collect()
}

#[test]
fn speakers_get_their_own_words_in_order_and_the_end_is_held_out() {
    let federated = load(PLAY, 2, 3).unwrap();
    assert_eq!(federated.names, ["ANNE", "CARL"]);
    let anne = text(&federated.shards[0]);
    // 22 characters are 7 sequences and a last target; a fifth of 7, rounded, is held out.
    assert_eq!(spell(&anne.inputs, PLAY), "abcdefgh\nijklmnop:");
    assert_eq!(spell(&anne.targets, PLAY), "bcdefgh\nijklmnop:\n");
    assert_eq!(spell(&text(&federated.shards[1]).inputs, PLAY), "012345");
    assert_eq!(spell(&text(&federated.test).inputs, PLAY), "\nqr678");
    assert_eq!(spell(&text(&federated.test).targets, PLAY), "qrs789");
    assert_eq!((anne.len(), anne.length), (6, 3));
    let mut alphabet: Vec<char> = PLAY.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    assert_eq!(anne.vocabulary, alphabet.len());
}

#[test]
fn line_ends_of_windows_make_no_difference() {
    assert!(load(PLAY, 2, 3).unwrap() == load(PLAY.replace('\n', "\r\n"), 2, 3).unwrap());
}

#[test]
fn every_line_end_has_a_number() {
    let federated = load("ANNE:\nabc", 1, 1);
    assert_eq!(text(&federated.unwrap().test).targets, [0]);
}

#[test]
fn bad_requests_are_refused() {
    assert!(matches!(load(PLAY, 0, 3), Err(DataError::NoParticipants)));
    assert!(matches!(load(PLAY, 1, 0), Err(DataError::BadLength(0))));
    assert!(matches!(load(PLAY, 1, usize::MAX), Err(DataError::BadLength(_))));
    // Bob has three characters; two sequences of one and their last target fit, two of three do not.
    assert!(matches!(load(PLAY, 3, 3), Err(DataError::TooFewSpeakers { asked: 3, found: 2, needed: 7 })));
    assert_eq!(load(PLAY, 3, 1).unwrap().names, ["ANNE", "CARL", "BOB"]);
    assert!(matches!(load(PLAY, 4, 1), Err(DataError::TooFewSpeakers { asked: 4, found: 3, needed: 3 })));
}

#[test]
fn bad_files_are_refused() {
    for play in ["", "\n\n", "Nobody speaks here.\n\nNor here.\nNOT A HEADER:\n"] {
        assert!(matches!(load(play, 1, 3), Err(DataError::NoSpeakers { .. })), "{play:?}");
    }
    assert!(matches!(load([0xff, 0xfe, 0x00], 1, 3), Err(DataError::NotUtf8 { .. })));

    let error = text::load(Path::new("/no/such/folder"), 1, 3).unwrap_err();
    assert!(matches!(error, DataError::MissingFolder { .. }) && error.to_string().contains("/no/such/folder"));
    let empty = tempfile::tempdir().unwrap();
    let error = text::load(empty.path(), 1, 3).unwrap_err();
    assert!(matches!(error, DataError::MissingFile { .. }) && error.to_string().contains("input.txt"), "{error}");
}

#[test]
fn a_text_beyond_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Sparse: takes no room on the disk.
    fs::File::create(folder.path().join("input.txt")).unwrap().set_len(text::MAX_BYTES + 1).unwrap();
    assert!(matches!(text::load(folder.path(), 1, 3), Err(DataError::TextTooLarge { .. })));
}

#[test]
fn shakespeare_is_dealt_out_by_speaker() {
    let Some(dir) = crate::common::real_data("shakespeare") else { return };
    let federated = text::load(&dir, 20, 80).unwrap();
    assert_eq!(federated.names[..2], ["GLOUCESTER", "DUKE VINCENTIO"]);
    let sizes: Vec<usize> = federated.shards.iter().map(Dataset::len).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[19] > 50, "{sizes:?}");
    for data in federated.shards.iter().map(text).chain([text(&federated.test)]) {
        assert_eq!((data.vocabulary, data.length), (65, 80));
        assert_eq!(data.inputs.len(), data.targets.len());
        assert_eq!(data.inputs[1..80], data.targets[..79]);
        assert!(data.inputs.iter().chain(&data.targets).all(|&number| number < 65));
    }
    let all: usize = sizes.iter().sum();
    let share = federated.test.len() as f64 / (all + federated.test.len()) as f64;
    assert!((share - 0.2).abs() < 0.01, "{share}");
    assert!(federated == text::load(&dir, 20, 80).unwrap());
}
