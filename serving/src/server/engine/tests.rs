//! Batches, from the queue to the answers and to the comparison of versions.

use std::time::Duration;

use client_sdk::models::{Architecture, Gru, Linear};
use client_sdk::train::TrainError;
use futures_util::future::join_all;
use inference::batcher::{Batch, Part, Refused};
use learning::checkpoint;
use wire::Digest;

use super::super::model::Loaded;
use super::compute::{compute, contained};
use super::*;

/// A version of a character model.
fn loaded(version: u32) -> Arc<Loaded> {
    let model = Architecture::Gru(Gru { vocabulary: 5, embedding: 3, hidden: 4, layers: 1 });
    let file = checkpoint::write(&model.initial(version.into()).unwrap()).unwrap();
    Arc::new(Loaded::read(version, Digest([0; 32]), &file, Some(&model), 4).unwrap())
}

/// One text of this many characters.
fn text(length: u32) -> Input {
    Input::Texts { characters: (0..length).map(|place| place % 5).collect(), length: length as usize }
}

/// Classes by the canary, and by the stable version.
type Classes = [Vec<u32>; 2];

/// Versions to compare, and the results of the comparison.
fn compared(canary: &Arc<Loaded>, stable: &Arc<Loaded>) -> (ModelPair, Arc<Mutex<Vec<Classes>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&told);
    let tell: Compared = Arc::new(move |canary: &[u32], stable: &[u32]| {
        all.lock().unwrap().push([canary.to_vec(), stable.to_vec()]);
    });
    (ModelPair { model: Arc::clone(canary), comparison: Some((Arc::clone(stable), tell)), length: 0 }, told)
}

#[test]
fn texts_of_different_lengths_are_compared_one_by_one() {
    let (canary, stable) = (loaded(2), loaded(1));
    let classes = |of: &Loaded, input: &Input| of.compute(input).unwrap().classes;
    for inputs in [[text(2), text(3)], [text(3), text(3)]] {
        let (target, told) = compared(&canary, &stable);
        let (mut parts, mut answers) = (Vec::new(), Vec::new());
        for input in &inputs {
            let (answer, receiver) = oneshot::channel();
            let pending = PendingRequest { input: input.clone(), answer };
            parts.push(Part { examples: 1, since: Duration::ZERO, pending });
            answers.push(receiver);
        }
        compute(&QueueMeters::of("digits"), Batch { target, parts }, Duration::ZERO);
        let expected = inputs.each_ref().map(|input| [classes(&canary, input), classes(&stable, input)]);
        let told = told.lock().unwrap();
        for side in 0..2 {
            let all = |pairs: &[Classes]| pairs.iter().flat_map(|pair| pair[side].clone()).collect::<Vec<_>>();
            assert_eq!(all(&told), all(&expected));
        }
        for (mut answer, [said, _]) in answers.into_iter().zip(expected) {
            assert_eq!(answer.try_recv().unwrap().unwrap().classes, said);
        }
    }
}

#[tokio::test]
async fn a_panic_ends_no_compute_thread() {
    let engine = Engine::start(&["digits".to_owned()], Batching::default(), 1).unwrap();
    let tell: Compared = Arc::new(|canary: &[u32], _: &[u32]| assert!(canary.is_empty(), "planted"));
    let target = ModelPair { model: loaded(2), comparison: Some((loaded(1), tell)), length: 0 };
    for _ in 0..3 {
        let said = engine.ask(0, None, &target, text(3));
        let said = tokio::time::timeout(Duration::from_secs(60), said).await.expect("a thread computes still");
        assert_eq!(said.unwrap().classes.len(), 3);
    }
}

#[test]
fn a_panic_is_the_version_s_fault_and_a_full_queue_is_not() {
    let panicked = contained(|| -> Result<(), TrainError> { panic!("planted") }).unwrap_err();
    assert!(matches!(panicked, NoAnswer::Panicked) && panicked.is_of_version());
    let unfit = contained(|| Err::<(), _>(TrainError::NotFinite)).unwrap_err();
    assert!(matches!(unfit, NoAnswer::Unfit(_)) && unfit.is_of_version());
    let full = Refused::Full { waiting: 1, retry_after: Duration::ZERO };
    assert!(!NoAnswer::from(full).is_of_version() && !NoAnswer::ShuttingDown.is_of_version());
}

#[tokio::test]
async fn a_full_queue_is_known_before_a_body_is_read_and_who_goes_away_makes_room() {
    let batching = Batching { max_delay: Duration::from_secs(3600), queue: 1, ..Batching::default() };
    let engine = Engine::start(&["digits".to_owned()], batching, 1).unwrap();
    let target = ModelPair { model: loaded(1), comparison: None, length: 0 };
    // The pending work is kept for this request.
    let reading = engine.arriving(0, true).unwrap();
    let ask = || Box::pin(engine.ask(0, engine.arriving(0, false).ok(), &target, text(2)));
    let mut first = ask();
    tokio::select! {
        biased;
        said = &mut first => panic!("{said:?}"),
        () = std::future::ready(()) => {}
    }
    let full = engine.arriving(0, true).err();
    assert!(matches!(full, Some(NoAnswer::Refused(Refused::Full { waiting: 1, .. }))), "{full:?}");
    assert!(engine.arriving(0, false).is_ok(), "what may be remembered needs no place");
    assert_eq!(engine.take_demand(), 2, "with the one for which there was no room");
    drop(first);
    assert!(engine.arriving(0, true).is_ok());
    let second = ask();
    drop(reading);
    assert_eq!(second.await.unwrap().classes.len(), 2);
}

/// A version that computes instantly, and a row for it.
fn quick(version: u32) -> Arc<Loaded> {
    let model = Architecture::Linear(Linear { inputs: 2, classes: 2 });
    let file = checkpoint::write(&model.initial(version.into()).unwrap()).unwrap();
    let loaded = Loaded::read(version, Digest([0; 32]), &file, Some(&model), 8).unwrap();
    loaded.set_pace(Duration::from_nanos(1));
    Arc::new(loaded)
}

fn one_row(number: f32) -> Input {
    Input::Rows { values: vec![number, 1.0], width: 2 }
}

#[tokio::test]
async fn requests_that_are_there_at_once_are_computed_at_once_by_whoever_asks() {
    let batching = Batching { max_batch: 8, ..Batching::default() };
    let engine = Engine::start(&["digits".to_owned()], batching, 1).unwrap();
    let (canary, stable) = (quick(2), quick(1));
    let (target, told) = compared(&canary, &stable);
    // A request that is only starting would compute the queued work.
    while engine.shared.lock().sleeping == 0 {
        std::thread::yield_now();
    }
    let rows = [0.5, -1.0, 2.0, 3.5, -4.0];
    let said = join_all(rows.map(|number| engine.ask(0, None, &target, one_row(number)))).await;
    for (number, said) in rows.into_iter().zip(said) {
        let (said, alone) = (said.unwrap(), canary.compute(&one_row(number)).unwrap());
        assert_eq!(said.scores.len(), 2);
        assert!(said.scores.iter().zip(&alone.scores).all(|(one, other)| (one - other).abs() <= 1e-6), "{said:?}");
    }
    // In order and in one batch, without a wake-up.
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0][0].len(), rows.len());
}

#[tokio::test]
async fn who_computes_for_others_and_goes_away_leaves_them_to_the_threads() {
    let batching = Batching { max_delay: Duration::from_millis(20), ..Batching::default() };
    let engine = Engine::start(&["digits".to_owned()], batching, 1).unwrap();
    let target = ModelPair { model: quick(1), comparison: None, length: 0 };
    // Reading takes longer than the delay, so the pending work is left to a thread, which wakes up after the delay.
    let reading = engine.arriving(0, true).unwrap();
    let mut gone = Box::pin(engine.ask(0, None, &target, one_row(1.0)));
    tokio::select! {
        biased;
        said = &mut gone => panic!("{said:?}"),
        () = std::future::ready(()) => {}
    }
    drop(gone);
    let said = tokio::time::timeout(Duration::from_secs(60), engine.ask(0, None, &target, one_row(2.0))).await;
    assert_eq!(said.expect("a thread computes it").unwrap().classes.len(), 1);
    drop(reading);
    let many = Input::Rows { values: vec![1.0; 2 * 3 * 32], width: 2 };
    let said = tokio::time::timeout(Duration::from_secs(60), engine.ask(0, None, &target, many)).await;
    assert_eq!(said.expect("a thread computes it").unwrap().classes.len(), 96, "in parts, by the threads");
}
