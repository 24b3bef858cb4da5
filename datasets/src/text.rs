//! Plays as federated data: one participant per speaker, who predicts the next character of the speaker's lines.
//!
//! The format is that of the file known as tiny-shakespeare: a line `SPEAKER:` after a blank line (or at the top), then
//! the spoken lines, up to the next speaker. This is a naturally non-IID case: speakers differ in vocabulary and in
//! amount of text (McMahan et al. 2017, §3; LEAF, Caldas et al. 2018).

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use crate::limits::{MAX_BYTES, MAX_LENGTH};
use crate::{DataError, Dataset, Federated, Text};

/// Share of each speaker's sequences, taken from the end, that goes to the test set.
pub const HELD_OUT: f64 = 0.2;
/// Name of the file in its folder.
pub const FILE_NAME: &str = "input.txt";

/// Reads [`FILE_NAME`] in `dir` and gives the `participants` speakers with the most text a shard each, most text first.
///
/// Characters are numbered in code point order over the whole file. A speaker's text is one stream, cut every `length`
/// characters (a remainder is dropped); the targets are the same stream one character later. The last [`HELD_OUT`] of
/// each speaker's sequences are the test set.
///
/// # Errors
/// [`DataError`] names the file that is missing or unreadable, or the reason it cannot be partitioned.
pub fn load(dir: &Path, participants: usize, length: usize) -> Result<Federated, DataError> {
    if participants == 0 {
        return Err(DataError::NoParticipants);
    }
    if !(1..=MAX_LENGTH).contains(&length) {
        return Err(DataError::BadLength(length));
    }
    let play = read(dir)?;
    let mut speakers = speakers(&play);
    if speakers.is_empty() {
        return Err(DataError::NoSpeakers { path: dir.join(FILE_NAME) });
    }
    // Two sequences and the character after the last: one to train on and one to test.
    let needed = 2 * length + 1;
    speakers.retain(|speaker| speaker.characters >= needed);
    let found = speakers.len();
    if found < participants {
        return Err(DataError::TooFewSpeakers { asked: participants, found, needed });
    }
    // A stable sort: ties stay in the order of first appearance.
    speakers.sort_by_key(|speaker| std::cmp::Reverse(speaker.characters));
    speakers.truncate(participants);

    let alphabet = Alphabet::of(&play);
    let (shards, held_out): (Vec<_>, Vec<_>) =
        speakers.iter().map(|speaker| alphabet.sequences(&speaker.says, length).split(HELD_OUT)).unzip();
    Ok(Federated {
        shards: shards.into_iter().map(Dataset::Text).collect(),
        test: Dataset::Text(Text::concat(&held_out)?),
        names: speakers.into_iter().map(|speaker| speaker.name.to_owned()).collect(),
        description: format!(
            "{FILE_NAME}, {participants} of {found} speakers, {} different characters in sequences of {length}",
            alphabet.numbers.len()
        ),
    })
}

/// The whole text, with line ends normalized to line feeds.
fn read(dir: &Path) -> Result<String, DataError> {
    if !dir.is_dir() {
        let expected = "a text of speeches, input.txt";
        return Err(DataError::MissingFolder { path: dir.to_owned(), expected });
    }
    let path = dir.join(FILE_NAME);
    if !path.exists() {
        return Err(DataError::MissingFile { folder: dir.to_owned(), looked_for: vec![FILE_NAME.to_owned()] });
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    file.map_err(|source| DataError::Read { path: path.clone(), source })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(DataError::TextTooLarge { path });
    }
    let text = String::from_utf8(bytes).map_err(|_| DataError::NotUtf8 { path })?;
    Ok(text.replace("\r\n", "\n"))
}

/// A speaker and everything they say, each line with its line feed.
struct Speaker<'a> {
    name: &'a str,
    says: String,
    /// Length of the speaker's text in characters.
    characters: usize,
}

/// All speakers, in the order of first appearance. Text before the first speaker is dropped.
fn speakers(play: &str) -> Vec<Speaker<'_>> {
    let mut speakers: Vec<Speaker<'_>> = Vec::new();
    let mut places = HashMap::new();
    let mut speaking = None;
    let mut after_blank = true;
    for line in play.lines() {
        let name = line.strip_suffix(':').map(str::trim).filter(|name| after_blank && !name.is_empty());
        after_blank = line.trim().is_empty();
        if let Some(name) = name {
            let place = *places.entry(name).or_insert(speakers.len());
            if place == speakers.len() {
                speakers.push(Speaker { name, says: String::new(), characters: 0 });
            }
            speaking = Some(place);
        } else if let (Some(place), false) = (speaking, after_blank) {
            let speaker = &mut speakers[place];
            speaker.says.push_str(line);
            speaker.says.push('\n');
            speaker.characters += line.chars().count() + 1;
        }
    }
    speakers
}

/// A number for each character of the text.
struct Alphabet {
    numbers: HashMap<char, u32>,
}

impl Alphabet {
    /// Requires a play with a speaker, which has a line feed at least.
    fn of(play: &str) -> Self {
        let characters: BTreeSet<char> = play.chars().collect();
        Self { numbers: characters.into_iter().zip(0..).collect() }
    }

    /// Cuts a stream of more than `length` characters into sequences.
    fn sequences(&self, stream: &str, length: usize) -> Text {
        let numbers: Vec<u32> = stream.chars().map(|character| self.numbers[&character]).collect();
        let used = (numbers.len() - 1) / length * length;
        Text {
            inputs: numbers[..used].to_vec(),
            targets: numbers[1..=used].to_vec(),
            length,
            vocabulary: self.numbers.len(),
        }
    }
}
