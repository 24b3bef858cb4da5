//! Plays as federated data: one participant per speaker, who predict the next character of what they say.
//!
//! The format is that of the file known as tiny-shakespeare: a line `SPEAKER:` after a blank line (or at the top), then
//! the lines that are said, up to the next speaker. This is the natural non-IID case: everybody has their own words and
//! their own amount of them (McMahan et al. 2017, §3; LEAF, Caldas et al. 2018).

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{DataError, Dataset, Federated, Text};

/// Most bytes of a text.
pub const MAX_BYTES: u64 = 64 << 20;
/// Longest sequence, in characters.
pub const MAX_LENGTH: usize = 4096;
/// Share of each speaker's sequences, the last ones, that goes to the test set.
pub const HELD_OUT: f64 = 0.2;
/// Name of the file in its folder.
pub const FILE_NAME: &str = "input.txt";

/// Reads [`FILE_NAME`] in `dir` and gives the `participants` speakers with most text a shard each, most text first.
///
/// Characters are numbered in the order of their code points, over the whole file. What a speaker says is one stream,
/// cut every `length` characters (a remainder is left out); the targets are the same stream one character later. The
/// last [`HELD_OUT`] of each speaker's sequences are the test set.
///
/// # Errors
/// [`DataError`] says which file was absent or unreadable, or why it cannot be dealt out like this.
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
    // Two sequences, and the character that follows the last: something to train on and something to test.
    let needed = 2 * length + 1;
    speakers.retain(|speaker| speaker.characters >= needed);
    let found = speakers.len();
    if found < participants {
        return Err(DataError::TooFewSpeakers { asked: participants, found, needed });
    }
    // A stable sort: equals stay in the order in which they first speak.
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

/// The whole text, with line feeds alone as line ends.
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

/// Somebody in the play, and everything they say, each line with its line feed.
struct Speaker<'a> {
    name: &'a str,
    says: String,
    /// Length of `says` in characters.
    characters: usize,
}

/// Everybody who speaks, in the order of their first words. What stands before the first speaker is left out.
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
    /// Of a play in which somebody speaks: it has a line feed, which a last line may lack but is given.
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
