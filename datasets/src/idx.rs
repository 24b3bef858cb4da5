//! MNIST in its IDX files (<http://yann.lecun.com/exdb/mnist/>): four big-endian header words for images, two for
//! labels, then one byte per pixel or label.
//!
//! Headers are untrusted: they are bounded before anything is read, and memory grows only with bytes that are actually
//! present, also inside gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

pub use crate::limits::{MAX_CONTENT_BYTES, MAX_ITEMS, MAX_SIDE};
use crate::{DataError, Labelled};

pub const CLASSES: usize = 10;
/// Mean of MNIST's training pixels on a scale of 0 to 1.
pub const PIXEL_MEAN: f32 = 0.1307;
/// Standard deviation of MNIST's training pixels on that scale.
pub const PIXEL_DEVIATION: f32 = 0.3081;
/// Share of the images that becomes the test set if only one of MNIST's two sets is present.
pub const HELD_OUT: f64 = 0.15;

const IMAGES_MAGIC: u32 = 0x0803;
const LABELS_MAGIC: u32 = 0x0801;

/// Reads MNIST (or a set in its format, such as Fashion-MNIST) from `dir`: `(train, test)`.
///
/// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same with `t10k`, plain or with `.gz`. If only
/// one of the two sets is present, [`HELD_OUT`] of it, chosen by `seed`, is the test set. Pixels are in row order,
/// normalized as `(x / 255 - 0.1307) / 0.3081`.
///
/// # Errors
/// [`DataError`] names the file that is missing, unreadable or damaged.
pub fn load_mnist(dir: &Path, seed: u64) -> Result<(Labelled, Labelled), DataError> {
    if !dir.is_dir() {
        let expected = "MNIST's IDX files, such as t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz";
        return Err(DataError::MissingFolder { path: dir.to_owned(), expected });
    }
    match (load_set(dir, "train")?, load_set(dir, "t10k")?) {
        (Some(train), Some(test)) if train.width == test.width => Ok((train, test)),
        (Some(train), Some(test)) => {
            Err(DataError::Incompatible(format!("{train:?} to train and {test:?} to test differ in shape")))
        }
        (Some(only), None) | (None, Some(only)) => Ok(only.split(HELD_OUT, seed)),
        (None, None) => {
            let looked_for = [images_name("train"), images_name("t10k")].iter().flat_map(|n| variants(n)).collect();
            Err(DataError::MissingFile { folder: dir.to_owned(), looked_for })
        }
    }
}

/// The 10,000 digits of MNIST's test set, which come with this crate (`datasets/mnist10k`), split and normalized as by
/// [`load_mnist`].
///
/// # Errors
/// None: the files are part of the program.
pub fn shipped_mnist(seed: u64) -> Result<(Labelled, Labelled), DataError> {
    const IMAGES: &[u8] = include_bytes!("../mnist10k/t10k-images-idx3-ubyte.gz");
    const LABELS: &[u8] = include_bytes!("../mnist10k/t10k-labels-idx1-ubyte.gz");
    let images = Input::new(Path::new("t10k-images-idx3-ubyte.gz"), IMAGES)?;
    let labels = Input::new(Path::new("t10k-labels-idx1-ubyte.gz"), LABELS)?;
    Ok(read_set(images, labels)?.split(HELD_OUT, seed))
}

/// Reads one set; `None` if neither of its files is present. Half a set is an error.
fn load_set(dir: &Path, set: &str) -> Result<Option<Labelled>, DataError> {
    let (images_name, labels_name) = (images_name(set), format!("{set}-labels-idx1-ubyte"));
    let missing = |name: &str| DataError::MissingFile { folder: dir.to_owned(), looked_for: variants(name) };
    let (images_path, labels_path) = match (find(dir, &images_name), find(dir, &labels_name)) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(missing(&labels_name)),
        (None, Some(_)) => return Err(missing(&images_name)),
        (Some(images), Some(labels)) => (images, labels),
    };
    read_set(Input::open(&images_path)?, Input::open(&labels_path)?).map(Some)
}

/// Images, and a label for each.
fn read_set(images: Input, labels: Input) -> Result<Labelled, DataError> {
    let (images_path, labels_path) = (images.path.clone(), labels.path.clone());
    // Labels first: they are small, so an error is found before much is read.
    let labels = read_labels(labels)?;
    let (pixels, width) = read_images(images)?;
    let images = pixels.len() / width;
    if images != labels.len() {
        return Err(DataError::CountMismatch { images_path, images, labels_path, labels: labels.len() });
    }
    let features = pixels.into_iter().map(|x| (f32::from(x) / 255.0 - PIXEL_MEAN) / PIXEL_DEVIATION).collect();
    Ok(Labelled { features, labels, width, classes: CLASSES })
}

fn images_name(set: &str) -> String {
    format!("{set}-images-idx3-ubyte")
}

/// The accepted names of a file.
fn variants(name: &str) -> Vec<String> {
    vec![name.to_owned(), format!("{name}.gz")]
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    variants(name).into_iter().map(|name| dir.join(name)).find(|path| path.exists())
}

fn read_labels(mut input: Input) -> Result<Vec<u32>, DataError> {
    input.magic("labels", LABELS_MAGIC)?;
    let count = input.word()?;
    let content = input.content(count, 1, 1)?;
    let labels: Vec<u32> = content.into_iter().map(u32::from).collect();
    match labels.iter().position(|&label| label as usize >= CLASSES) {
        Some(position) => Err(DataError::LabelOutOfRange { label: labels[position], position, classes: CLASSES }),
        None => Ok(labels),
    }
}

/// All pixels, and the number of pixels per image (at least 1).
fn read_images(mut input: Input) -> Result<(Vec<u8>, usize), DataError> {
    input.magic("images", IMAGES_MAGIC)?;
    let (count, rows, columns) = (input.word()?, input.word()?, input.word()?);
    let pixels = input.content(count, rows, columns)?;
    Ok((pixels, rows as usize * columns as usize))
}

/// An open file, decompressed if necessary.
struct Input {
    path: PathBuf,
    reader: Box<dyn Read>,
    /// Header bytes read so far.
    header: usize,
}

impl Input {
    fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
        Self::new(path, BufReader::new(file))
    }

    /// The content of a file. Detects compression by content, not by name.
    fn new(path: &Path, mut file: impl BufRead + 'static) -> Result<Self, DataError> {
        let failed = |source| DataError::Read { path: path.to_owned(), source };
        let compressed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        Ok(Self { path: path.to_owned(), reader, header: 0 })
    }

    fn magic(&mut self, what: &'static str, expected: u32) -> Result<(), DataError> {
        match self.word()? {
            found if found == expected => Ok(()),
            found => Err(DataError::BadMagic { path: self.path.clone(), what, found, expected }),
        }
    }

    /// The next big-endian word of the header.
    fn word(&mut self) -> Result<u32, DataError> {
        let bytes = self.read_up_to(4)?;
        match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(word) => {
                self.header += 4;
                Ok(u32::from_be_bytes(word))
            }
            Err(_) => {
                let found = self.header + bytes.len();
                Err(DataError::Truncated { path: self.path.clone(), part: "header", expected: self.header + 4, found })
            }
        }
    }

    /// The rest of the file, which must be `count` items of `rows × columns` bytes.
    fn content(mut self, count: u32, rows: u32, columns: u32) -> Result<Vec<u8>, DataError> {
        let total = u64::from(count) * u64::from(rows.min(MAX_SIDE)) * u64::from(columns.min(MAX_SIDE));
        let sound = (1..=MAX_ITEMS).contains(&count)
            && (1..=MAX_SIDE).contains(&rows)
            && (1..=MAX_SIDE).contains(&columns)
            && total <= MAX_CONTENT_BYTES;
        let path = self.path.clone();
        let (true, Ok(expected)) = (sound, usize::try_from(total)) else {
            return Err(DataError::BadHeader { path, count, rows, columns });
        };
        let mut bytes = self.read_up_to(total + 1)?;
        match bytes.len() {
            found if found < expected => Err(DataError::Truncated { path, part: "content", expected, found }),
            found if found > expected => Err(DataError::TrailingBytes { path, expected }),
            _ => {
                bytes.shrink_to_fit();
                Ok(bytes)
            }
        }
    }

    /// Reads `most` bytes, or fewer at the end of the file; the buffer grows only with bytes that are present.
    fn read_up_to(&mut self, most: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let path = || self.path.clone();
        match self.reader.by_ref().take(most).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            // The decompressor's errors for damaged or truncated input.
            Err(source)
                if matches!(
                    source.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Err(DataError::Gzip { path: path(), source })
            }
            Err(source) => Err(DataError::Read { path: path(), source }),
        }
    }
}
