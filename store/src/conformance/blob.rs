//! Guarantees of blobs.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use bytes::Bytes;

use super::sample::digest;
use crate::{Store, StoreError};

const ANY_AGE: Duration = Duration::ZERO;
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// The least age that a blob does not have which was stored at the present moment.
const NOT_NEW: Duration = Duration::from_millis(1);

/// The address is the SHA-256; storing twice equals storing once; an empty blob is valid.
pub async fn bytes_come_back_and_are_verified(store: &Store) {
    let blobs = store.blobs();
    let address = blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    // FIPS 180-4, example B.1.
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(address.to_string(), expected);
    assert_eq!(blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap(), address);
    assert_eq!(blobs.get(address).await.unwrap(), "abc");
    assert_eq!(blobs.len(address).await.unwrap(), Some(3));
    let empty = blobs.put_bytes(Bytes::new()).await.unwrap();
    assert_eq!(blobs.get(empty).await.unwrap(), "");
    assert_eq!(blobs.list(ANY_AGE).await.unwrap().len(), 2);

    let missing = digest(1);
    assert_eq!(blobs.len(missing).await.unwrap(), None);
    assert!(matches!(blobs.get(missing).await, Err(StoreError::MissingBlob(found)) if found == missing));
    assert!(matches!(blobs.open(missing).await, Err(StoreError::MissingBlob(found)) if found == missing));
}

/// Pieces of any size make the same blob; an unfinished or unexpected one is not stored.
pub async fn a_writer_keeps_all_or_nothing(store: &Store) {
    let blobs = store.blobs();
    let whole: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[2]).collect();
    let whole = Bytes::from(whole);
    let mut writer = blobs.writer().await.unwrap();
    for piece in [0..0, 0..1, 1..700_000, 700_000..2_900_000, 2_900_000..3_000_000] {
        writer.write(whole.slice(piece)).await.unwrap();
    }
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), []);
    let (address, size) = writer.finish(None).await.unwrap();
    assert_eq!(size, 3_000_000);
    assert_eq!(blobs.get(address).await.unwrap(), whole);
    assert!(blobs.delete(address).await.unwrap());

    let mut cut_off = blobs.writer().await.unwrap();
    cut_off.write(whole.slice(0..2_000_000)).await.unwrap();
    assert!(matches!(cut_off.finish(Some(address)).await, Err(StoreError::Conflict(_))));
    let mut dropped = blobs.writer().await.unwrap();
    dropped.write(whole.clone()).await.unwrap();
    drop(dropped);
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), []);

    let mut again = blobs.writer().await.unwrap();
    again.write(whole.clone()).await.unwrap();
    assert_eq!(again.finish(Some(address)).await.unwrap(), (address, 3_000_000));
    assert_eq!(blobs.put_bytes(whole).await.unwrap(), address);
}

/// Reading may start anywhere, stop early, and survives the blob's removal.
pub async fn a_blob_is_read_piece_by_piece(store: &Store) {
    let blobs = store.blobs();
    let address = blobs.put_bytes(Bytes::from_static(b"0123456789")).await.unwrap();
    let mut reader = blobs.open(address).await.unwrap();
    assert!(blobs.delete(address).await.unwrap());
    assert_eq!(reader.size(), 10);
    assert_eq!(reader.seek(SeekFrom::Start(4)).unwrap(), 4);
    let mut piece = [0; 3];
    reader.read_exact(&mut piece).unwrap();
    assert_eq!(&piece, b"456");
    let mut rest = String::new();
    assert_eq!(reader.read_to_string(&mut rest).unwrap(), 3);
    assert_eq!(rest, "789");
}

/// A removed blob can be stored again.
pub async fn blobs_are_deleted_and_listed_by_age(store: &Store) {
    let blobs = store.blobs();
    let address = blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), [address]);
    assert_eq!(blobs.list(A_YEAR).await.unwrap(), []);
    assert!(!blobs.collect(address, A_YEAR).await.unwrap());
    assert!(blobs.collect(address, ANY_AGE).await.unwrap());
    assert!(!blobs.collect(address, ANY_AGE).await.unwrap());
    assert_eq!(blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap(), address);
    assert!(blobs.delete(address).await.unwrap());
    assert!(!blobs.delete(address).await.unwrap());
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), []);
}

/// The same to the millisecond, for stores whose ages are by the suite's clock. It stands still, so all blobs have the
/// same age.
pub async fn ages_are_by_the_clock(store: &Store) {
    let blobs = store.blobs();
    let address = blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), [address]);
    assert_eq!(blobs.list(NOT_NEW).await.unwrap(), []);
    assert!(!blobs.collect(address, NOT_NEW).await.unwrap());
    assert!(blobs.collect(address, ANY_AGE).await.unwrap());
    assert!(!blobs.collect(address, ANY_AGE).await.unwrap());
    assert_eq!(blobs.put_bytes(Bytes::from_static(b"abc")).await.unwrap(), address);
    assert!(blobs.delete(address).await.unwrap());
    assert!(!blobs.delete(address).await.unwrap());
    assert_eq!(blobs.list(ANY_AGE).await.unwrap(), []);
}
