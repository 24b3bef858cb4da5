//! TensorBoard's event files: records (`tensorflow/core/lib/io/record_writer.h`) of `Event` messages
//! (`tensorflow/core/util/event.proto`), of which only scalars are needed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use prost::Message;

use super::records::TaskRounds;

/// Fields of `Event` that are written here.
#[derive(Clone, PartialEq, Message)]
struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

/// `tensorflow/core/framework/summary.proto`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    /// One of several kinds of values, so that its absence differs from 0, which is written.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// Writes one event file into a folder of the task's name: a step for each number of a round, by its last attempt.
pub(super) fn write(task: &TaskRounds, out: &Path) -> io::Result<()> {
    let folder = out.join(task.folder());
    fs::create_dir_all(&folder)?;
    let began = task.task.summary.created_at.0.div_euclid(1000);
    // The same name each time, so that a later export replaces an earlier one.
    let path = folder.join(format!("events.out.tfevents.{began}.{}", task.task.summary.id));
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    let version = Event { wall_time: seconds(task.task.summary.created_at.0), step: 0, what: None };
    put(&mut file, &Event { what: Some(What::FileVersion("brain.Event:2".to_owned())), ..version })?;
    for (round, next) in task.rounds.iter().zip(task.rounds.iter().skip(1).map(Some).chain([None])) {
        if next.is_some_and(|next| next.number == round.number) {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the format has single precision")]
        let values = task
            .figures(round)
            .into_iter()
            .map(|(tag, value)| Value { tag: tag.replace('.', "/"), simple_value: Some(value as f32) });
        let at = round.ended_at.unwrap_or(round.opened_at);
        let summary = Summary { values: values.collect() };
        put(
            &mut file,
            &Event { wall_time: seconds(at.0), step: round.number.into(), what: Some(What::Summary(summary)) },
        )?;
    }
    file.flush()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of this epoch are below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// A record: its length, a checksum of that, the bytes, a checksum of those.
fn put(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let bytes = event.encode_to_vec();
    let length = (bytes.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(&bytes)?;
    out.write_all(&masked(&bytes).to_le_bytes())
}

/// CRC-32C, masked so that a checksum of bytes that hold checksums is a good one (`tensorflow/core/lib/hash/crc32c.h`).
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
