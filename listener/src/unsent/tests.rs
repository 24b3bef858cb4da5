//! Answers of several peers, taken late or left unread.

use std::net::Ipv4Addr;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::*;

fn unsent(streamed: usize) -> Unsent {
    Unsent::new(Bounds::of(streamed))
}

fn here() -> Key {
    Key::Address(Ipv4Addr::LOCALHOST.into())
}

async fn piece(body: &mut Body) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn an_answer_arrives_whole_in_pieces_and_its_length_is_known() {
    let budget = unsent(1 << 20).budget(here());
    for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7] {
        let bytes: Bytes = (0..length).map(|n| n.to_le_bytes()[0]).collect();
        let body = budget.send(Body::from(bytes.clone())).unwrap();
        assert_eq!(body.size_hint().exact(), Some(length as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        let chunks: Vec<_> = bytes.chunks(1000).map(|c| Ok::<_, axum::Error>(Bytes::copy_from_slice(c))).collect();
        let mut body = budget.send(Body::from_stream(futures_util::stream::iter(chunks))).unwrap();
        // Each taken before the next: there need not be room for two.
        let mut taken = Vec::new();
        while let Some(frame) = body.frame().await {
            taken.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        assert_eq!(taken, bytes);
    }
    assert_eq!(budget.connection.available_permits(), budget.bound, "all of it was given back");
    assert_eq!(budget.streamed.available_permits(), 1 << 20);
}

#[tokio::test]
async fn whole_answers_are_refused_beyond_what_a_connection_or_its_peer_may_have_unsent() {
    let unsent = unsent(16 * 8 * PIECE);
    let (first, second) = (unsent.budget(here()), unsent.budget(here()));
    let answer = || Body::from(vec![0; PIECE]);
    let mut held: Vec<_> = (0..6).map(|_| first.send(answer()).unwrap()).collect();
    assert!(first.send(answer()).is_none(), "the connection has enough");
    held.extend((0..2).map(|_| second.send(answer()).unwrap()));
    let third = unsent.budget(here());
    assert!(second.send(answer()).is_none() && third.send(answer()).is_none(), "the peer has enough");
    let taken = piece(&mut held[0]).await;
    assert!(first.send(answer()).is_none(), "handed on is not yet sent");
    drop(taken);
    assert!(first.send(answer()).is_some());
}

#[tokio::test]
async fn what_waits_takes_room_only_while_there_is_something_to_read() {
    let budget = unsent(PIECE).budget(here());
    let mut idle =
        budget.send_as_it_comes(Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>()));
    assert!(idle.frame().now_or_never().is_none() && budget.streamed.available_permits() == PIECE);
}

#[tokio::test]
async fn what_comes_takes_as_much_room_as_it_has_bytes() {
    let budget = unsent(PIECE).budget(here());
    let events =
        || Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, axum::Error>(Bytes::from_static(&[7; 100]))));
    let mut streams: Vec<_> = (0..PIECE / 100).map(|_| budget.send_as_it_comes(events())).collect();
    let mut untaken = Vec::new();
    for stream in &mut streams {
        untaken.push(piece(stream).await);
    }
    assert_eq!(budget.streamed.available_permits(), PIECE % 100);
    assert!(streams[0].frame().now_or_never().is_none(), "all room is taken");
    untaken.pop();
    assert_eq!(piece(&mut streams[0]).await.len(), 100);
}

#[tokio::test]
async fn a_large_answer_leaves_room_for_a_small_one_on_the_same_connection() {
    let unsent = unsent(16 * 8 * PIECE);
    let budget = unsent.budget(here());
    let roster = budget.send(Body::from(vec![0; 99 * PIECE])).unwrap();
    let check_in = budget.send(Body::from(vec![0; 1000])).unwrap();
    assert!(budget.send(Body::from(vec![0; 99 * PIECE])).is_none(), "not for another like it");
    drop((roster, check_in));
    assert_eq!(budget.connection.available_permits(), budget.bound);
}

#[tokio::test]
async fn a_stream_is_read_no_faster_than_its_pieces_are_taken() {
    let unsent = unsent(PIECE);
    let budget = unsent.budget(here());
    let endless =
        || Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, axum::Error>(Bytes::from_static(&[7; 100]))));
    let mut one = budget.send(endless()).unwrap();
    let mut other = unsent.budget(Key::Address(Ipv4Addr::BROADCAST.into())).send(endless()).unwrap();
    let taken = piece(&mut one).await;
    // A short piece gives the rest of its room back, but less than a piece is left.
    assert!(one.frame().now_or_never().is_none());
    assert!(other.frame().now_or_never().is_none(), "all share one bound");
    drop((taken, one));
    assert_eq!(piece(&mut other).await.len(), 100);
}

#[tokio::test]
async fn a_peer_has_so_many_answers_at_once_that_are_read_from_somewhere() {
    let unsent = unsent(1 << 20);
    let (first, second) = (unsent.budget(here()), unsent.budget(here()));
    let answer = || Body::from_stream(futures_util::stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"7"))]));
    let held: Vec<_> = (0..STREAMED_PER_PEER).map(|_| first.send(answer()).unwrap()).collect();
    assert!(second.send(answer()).is_none(), "over all of its connections");
    assert!(second.send(Body::from("whole")).is_some(), "what is whole is counted in bytes");
    assert!(unsent.budget(Key::Address(Ipv4Addr::BROADCAST.into())).send(answer()).is_some(), "nor for others");
    drop(held);
    assert!(second.send(answer()).is_some());
}

#[tokio::test]
async fn a_connection_whose_peer_turns_out_later_owes_what_it_is_sent_from_then_on() {
    let unsent = unsent(16 * 8 * PIECE);
    let (budget, other) = (unsent.budget(here()), Key::Address(Ipv4Addr::BROADCAST.into()));
    let answer = || Body::from(vec![0; PIECE]);
    let before = budget.send(answer()).unwrap();
    unsent.turn_out(&budget, other);
    unsent.turn_out(&budget, here());
    let after = budget.send(answer()).unwrap();
    let left = |key| unsent.peer_budget(key).bytes.available_permits();
    assert_eq!((left(here()), left(other)), (7 * PIECE, 7 * PIECE));
    let rest: Vec<_> = (0..4).map(|_| budget.send(answer()).unwrap()).collect();
    assert!(budget.send(answer()).is_none(), "it is the same connection");
    drop((before, after, rest));
    assert_eq!((left(here()), left(other)), (8 * PIECE, 8 * PIECE));
}

#[tokio::test(start_paused = true)]
async fn a_piece_that_is_not_taken_in_time_is_noticed() {
    let budget = unsent(1 << 20).budget(here());
    let patience = Duration::from_secs(30);
    assert!(budget.stalled(patience).now_or_never().is_none());
    for _ in 0..5 {
        // Slow, but it goes on.
        let taken = piece(&mut budget.send(Body::from("slow")).unwrap()).await;
        assert!(tokio::time::timeout(patience * 9 / 10, budget.stalled(patience)).await.is_err());
        drop(taken);
    }
    assert!(tokio::time::timeout(patience * 100, budget.stalled(patience)).await.is_err(), "an idle peer owes nothing");
    let _untaken = piece(&mut budget.send(Body::from("never")).unwrap()).await;
    let began = Instant::now();
    budget.stalled(patience).await;
    assert_eq!(began.elapsed(), patience);
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_what_the_same_peer_does_not_read_is_noticed_too() {
    let unsent = unsent(1 << 20);
    let endless = || {
        Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, axum::Error>(Bytes::from_static(&[7; PIECE]))))
    };
    let (first, second) = (unsent.budget(here()), unsent.budget(here()));
    let _untaken = piece(&mut first.send(endless()).unwrap()).await;
    let mut behind = second.send(endless()).unwrap();
    assert!(behind.frame().now_or_never().is_none(), "the peer has enough");
    let (patience, began) = (Duration::from_secs(30), Instant::now());
    second.stalled(patience).await;
    assert_eq!(began.elapsed(), patience);
    // Another peer that waits because all together have enough is not to blame.
    let (small, elsewhere) = (super::Unsent::new(Bounds::of(PIECE)), Key::Address(Ipv4Addr::BROADCAST.into()));
    let (deaf, honest) = (small.budget(here()), small.budget(elsewhere));
    let _untaken = piece(&mut deaf.send(endless()).unwrap()).await;
    let mut waits = honest.send(endless()).unwrap();
    assert!(waits.frame().now_or_never().is_none());
    assert!(tokio::time::timeout(patience * 10, honest.stalled(patience)).await.is_err());
}

#[tokio::test]
async fn peers_without_a_connection_are_forgotten() {
    let unsent = unsent(1 << 20);
    for n in 0..10_000_u32 {
        drop(unsent.budget(Key::Address(Ipv4Addr::from(n).into())));
    }
    assert!(unsent.peers.lock().len() < 10);
}
