//! Streams of shared pieces, read by common decoders.

use std::io::Read as _;

use flate2::read::{GzDecoder, MultiGzDecoder};
use flate2::{Decompress, FlushDecompress, Status};

use super::*;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state
}

/// Distinct events of about this many bytes.
fn text(mut seed: u64, bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    while text.len() < bytes {
        let state = next(&mut seed);
        text += &format!("id: {}\nevent: round_advanced\ndata: {{\"hash\":\"{state:016x}\"}}\n\n", text.len());
    }
    text.into_bytes()
}

/// The parts of a stream of these pieces, and its end.
fn stream<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> (Vec<Bytes>, Bytes) {
    let mut stream = GzipStream::default();
    let sent = pieces.into_iter().map(|piece| stream.push(piece)).collect();
    (sent, stream.end())
}

fn read(bytes: &[u8]) -> Vec<u8> {
    let (mut one, mut many) = (Vec::new(), Vec::new());
    GzDecoder::new(bytes).read_to_end(&mut one).unwrap();
    MultiGzDecoder::new(bytes).read_to_end(&mut many).unwrap();
    assert!(one == many, "there is one member");
    one
}

#[test]
fn pieces_in_any_order_are_a_stream_of_their_texts() {
    let texts = [0, 1, 300, 5_000, 70_000, 300_000].map(|bytes| text(bytes as u64, bytes));
    let compressed = texts.each_ref().map(|text| (text, Piece::compressed(text)));
    let stored = texts.each_ref().map(|text| (text, Piece::stored(text)));
    assert!(compressed[5].1.blocks.len() * 3 < texts[5].len());
    // Each piece after each other, in either form.
    let order: Vec<_> = compressed.iter().flat_map(|one| stored.iter().flat_map(move |other| [one, other])).collect();
    let (sent, end) = stream(order.iter().map(|(_, piece)| piece));
    let told: Vec<u8> = order.iter().flat_map(|(text, _)| *text).copied().collect();
    assert!(read(&[sent.concat(), end.to_vec()].concat()) == told);
    // The same pieces in another stream.
    let (sent, end) = stream(compressed.iter().rev().map(|(_, piece)| piece));
    let told: Vec<u8> = texts.iter().rev().flatten().copied().collect();
    assert!(read(&[sent.concat(), end.to_vec()].concat()) == told);
}

#[test]
fn whoever_has_a_piece_can_read_all_of_it_at_once() {
    let texts = [text(1, 20), text(2, 150_000), text(3, 400), b":\n\n".to_vec(), text(4, 60_000), text(5, 2_000)];
    let pieces: [_; 3] =
        std::array::from_fn(|pair| [Piece::stored(&texts[2 * pair]), Piece::compressed(&texts[2 * pair + 1])]);
    let (sent, _) = stream(pieces.as_flattened());
    let mut reader = Decompress::new(false);
    for (text, bytes) in texts.iter().zip(&sent) {
        let blocks = bytes.strip_prefix(&HEADER).unwrap_or(bytes);
        let mut told = Vec::with_capacity(text.len() + 1);
        let status = reader.decompress_vec(blocks, &mut told, FlushDecompress::Sync).unwrap();
        assert_eq!(status, Status::Ok);
        assert!(told == *text);
    }
}

#[test]
fn a_text_is_stored_in_blocks_that_are_short_enough() {
    for (bytes, blocks) in [(0, 0), (1, 1), (65_535, 1), (65_536, 2), (131_070, 2), (131_071, 3)] {
        let text = vec![b'x'; bytes];
        let piece = Piece::stored(&text);
        assert_eq!(piece.blocks.len(), bytes + 5 * blocks);
        let (sent, end) = stream([&piece]);
        assert!(read(&[&sent[0][..], &end].concat()) == text, "{bytes}");
    }
}

#[test]
fn a_text_that_compressing_makes_no_shorter_is_stored() {
    for bytes in [0, 1, 7, 1_000, 65_536, 300_000] {
        let noise: Vec<u8> = (0..bytes).scan(7_u64, |state, _| Some(next(state).to_be_bytes()[2])).collect();
        let (compressed, stored) = (Piece::compressed(&noise), Piece::stored(&noise));
        assert!(compressed.blocks == stored.blocks, "{bytes}");
        let (sent, end) = stream([&compressed]);
        assert!(read(&[&sent[0][..], &end].concat()) == noise, "{bytes}");
    }
}

#[test]
fn a_stream_that_told_nothing_is_a_whole_one() {
    assert_eq!(read(&GzipStream::default().end()), b"");
}

#[test]
fn a_stream_with_a_piece_left_out_is_found_out() {
    let pieces = [text(1, 500), text(2, 500)].map(|text| Piece::compressed(&text));
    let (sent, end) = stream(&pieces);
    GzDecoder::new(&[&sent[0][..], &end].concat()[..]).read_to_end(&mut Vec::new()).unwrap_err();
}
