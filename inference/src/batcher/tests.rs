//! Batches of a simulated crowd, under a virtual clock.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A request of a simulated crowd.
#[derive(Clone, Debug)]
struct Request {
    at: Moment,
    /// How long it takes to be read.
    reading: Duration,
    examples: usize,
    target: u8,
    /// It goes away this long after it began to wait.
    leaves_after: Option<Duration>,
}

/// Numbers of requests, and of their parts.
type Parts = Vec<(usize, usize)>;

/// What happened, by the virtual clock.
#[derive(Debug, Default)]
struct Told {
    /// Batches: when each was closed, and the numbers of its requests.
    batches: Vec<(Moment, u8, Parts)>,
    refused: Vec<usize>,
    /// By request: when it began to wait, and how many parts waited before it.
    waited: BTreeMap<usize, (Moment, usize)>,
}

/// Whether who began to wait has gone away by now.
fn has_left(requests: &[Request], told: &Told, now: Moment, number: usize) -> bool {
    requests[number].leaves_after.is_some_and(|after| now >= told.waited[&number].0 + after)
}

/// One worker that takes `took` for each batch, under a clock that jumps from event to event.
fn simulate(limits: Batching, requests: &[Request], took: Duration) -> Told {
    let mut batcher = Batcher::new(limits);
    let (mut told, mut arrivals) = (Told::default(), BTreeMap::new());
    let (mut busy_until, mut now, mut wake) = (Duration::ZERO, Duration::ZERO, None::<Moment>);
    let mut moments: Vec<Moment> = requests.iter().flat_map(|one| [one.at, one.at + one.reading]).collect();
    loop {
        for (number, request) in requests.iter().enumerate() {
            if request.at == now && !arrivals.contains_key(&number) {
                arrivals.insert(number, batcher.arrives(now));
            }
            if request.at + request.reading == now
                && !told.waited.contains_key(&number)
                && !told.refused.contains(&number)
            {
                batcher.arrived(arrivals[&number]);
                let ahead = batcher.waiting();
                let parts = limits.parts(request.examples).unwrap().map(|part| (part.len(), number));
                let parts = parts.collect::<Vec<_>>().into_iter();
                match batcher.offer(now, &request.target, parts, |number| has_left(requests, &told, now, *number)) {
                    Ok(()) => drop(told.waited.insert(number, (now, ahead))),
                    Err(_) => told.refused.push(number),
                }
            }
        }
        wake = wake.filter(|&at| at > now);
        if busy_until <= now {
            match batcher.next(now, |number| has_left(requests, &told, now, *number)) {
                Next::Compute(batch) => {
                    let parts = batch.parts.iter().map(|part| (part.pending, part.examples)).collect();
                    told.batches.push((now, batch.target, parts));
                    batcher.computed(took);
                    busy_until = now + took;
                }
                Next::WaitUntil(at) => {
                    assert!(at > now, "a worker that is told to wait has something to wait for");
                    wake = Some(at);
                }
                Next::Nothing => {}
            }
        }
        moments.retain(|&at| at > now);
        let later = moments.iter().copied().chain(wake).chain((busy_until > now).then_some(busy_until)).min();
        match later {
            Some(at) => now = at,
            None => return told,
        }
    }
}

fn request() -> impl Strategy<Value = Request> {
    (0_u32..200, 0_u32..30, 1_usize..80, 0_u8..2, proptest::option::of(0_u32..20)).prop_map(
        |(at, reading, examples, target, leaves)| Request {
            at: MS * at,
            reading: MS * reading,
            examples,
            target,
            leaves_after: leaves.map(|ms| MS * ms),
        },
    )
}

proptest! {
    #[test]
    fn batches_are_within_their_limits_and_everybody_is_answered_once(
        requests in proptest::collection::vec(request(), 1..150), took in 1_u32..15, max_batch in 1_usize..40, queue in 80_usize..120
    ) {
        let limits = Batching { max_batch, max_delay: MS * 10, queue };
        let told = simulate(limits, &requests, MS * took);
        let mut answered: BTreeMap<usize, usize> = BTreeMap::new();
        let mut last_of_target: BTreeMap<u8, (Moment, usize)> = BTreeMap::new();
        for (at, target, parts) in &told.batches {
            prop_assert!(!parts.is_empty());
            prop_assert!(parts.iter().map(|(_, examples)| examples).sum::<usize>() <= max_batch);
            for &(number, examples) in parts {
                prop_assert_eq!(requests[number].target, *target, "one version computes a batch");
                *answered.entry(number).or_default() += examples;
                let place = (told.waited[&number].0, number);
                let before = last_of_target.insert(*target, place).unwrap_or_default();
                prop_assert!(before <= place, "the order of requests is kept: {before:?} before {place:?}");
                let leaves = requests[number].leaves_after.map(|after| place.0 + after);
                prop_assert!(leaves.is_none_or(|leaves| *at < leaves), "nobody computes for who has gone");
            }
        }
        for number in told.waited.keys() {
            let examples = answered.get(number).copied().unwrap_or(0);
            let request = &requests[*number];
            prop_assert!(examples <= request.examples);
            prop_assert!(examples == request.examples || request.leaves_after.is_some(), "request {number} has {examples}");
        }
    }

    #[test]
    fn nobody_waits_longer_than_the_delay_and_a_batch_beside_what_is_ahead(
        requests in proptest::collection::vec(request(), 1..150), took in 1_u32..15
    ) {
        let single = |request: Request| Request { examples: 1, target: 0, leaves_after: None, ..request };
        let requests: Vec<_> = requests.into_iter().map(single).collect();
        let limits = Batching::default();
        let told = simulate(limits, &requests, MS * took);
        for (at, _, parts) in &told.batches {
            for (number, _) in parts {
                let (since, ahead) = told.waited[number];
                let full_batches = u32::try_from(ahead / limits.max_batch).unwrap();
                prop_assert!(*at - since <= limits.max_delay + MS * took * (1 + full_batches), "{number}: {since:?} to {at:?}");
            }
        }
    }

    #[test]
    fn an_idle_worker_never_lets_wait_while_nobody_is_on_the_way(
        offers in proptest::collection::vec((1_usize..40, 0_u8..3), 1..50)
    ) {
        let mut batcher = Batcher::new(Batching::default());
        let mut offered = 0;
        for (number, (examples, target)) in offers.iter().enumerate() {
            let parts: Vec<_> = batcher.limits().parts(*examples).unwrap().map(|part| (part.len(), number)).collect();
            offered += usize::from(batcher.offer(MS, target, parts.into_iter(), |_| false).is_ok());
        }
        prop_assert!(offered > 0);
        while batcher.waiting() > 0 {
            prop_assert!(matches!(batcher.next(MS, |_| false), Next::Compute(_)));
        }
        prop_assert_eq!(batcher.next(MS, |_| false), Next::Nothing);
    }

    #[test]
    fn parts_are_the_whole_request_or_it_is_refused(examples in 0_usize..5000, max_batch in 1_usize..64, queue in 1_usize..80) {
        let limits = Batching { max_batch, queue, ..Batching::default() };
        match limits.parts(examples) {
            Ok(parts) => {
                let parts: Vec<_> = parts.collect();
                prop_assert!(parts.len() <= queue && parts.iter().all(|part| (1..=max_batch).contains(&part.len())));
                prop_assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), (0..examples).collect::<Vec<_>>());
            }
            Err(refused) => {
                prop_assert!(examples > max_batch * queue);
                prop_assert_eq!(refused, Refused::TooLarge { examples, most: max_batch * queue });
            }
        }
    }
}

fn one(batcher: &mut Batcher<u8, usize>, now: Moment, number: usize) {
    batcher.offer(now, &0, [(1, number)].into_iter(), |_| false).unwrap();
}

#[test]
fn a_lone_request_goes_at_once_and_others_on_their_way_are_waited_for() {
    let mut batcher: Batcher<u8, usize> = Batcher::new(Batching::default());
    one(&mut batcher, MS, 1);
    assert!(matches!(batcher.next(MS, |_| false), Next::Compute(batch) if batch.parts.len() == 1));
    let arrival = batcher.arrives(MS * 2);
    one(&mut batcher, MS * 4, 2);
    assert_eq!(batcher.next(MS * 4, |_| false), Next::WaitUntil(MS * 12), "it is read since 2");
    batcher.arrived(arrival);
    one(&mut batcher, MS * 5, 3);
    assert!(matches!(batcher.next(MS * 5, |_| false), Next::Compute(batch) if batch.parts.len() == 2));
    batcher.arrives(MS * 6);
    one(&mut batcher, MS * 17, 4);
    let next = batcher.next(MS * 17, |_| false);
    assert!(matches!(next, Next::Compute(_)), "who takes longer than the delay to send holds nobody up");
}

#[test]
fn a_full_queue_says_when_to_come_back_and_takes_nothing_of_the_request() {
    let mut batcher: Batcher<u8, usize> = Batcher::new(Batching { queue: 3, ..Batching::default() });
    batcher.computed(Duration::from_secs(80));
    batcher.offer(MS, &0, [(32, 0), (32, 0)].into_iter(), |_| false).unwrap();
    let refused = batcher.offer(MS, &0, [(32, 1), (1, 1)].into_iter(), |_| false).unwrap_err();
    assert_eq!(refused, Refused::Full { waiting: 2, retry_after: Duration::from_secs(20) });
    assert_eq!(batcher.waiting(), 2);
    one(&mut batcher, MS, 2);
    assert!(refused.to_string().contains("try again in 20 s"), "{refused}");
}

#[test]
fn who_has_gone_away_makes_room_where_there_is_none() {
    let mut batcher: Batcher<u8, usize> = Batcher::new(Batching { queue: 2, ..Batching::default() });
    one(&mut batcher, MS, 1);
    one(&mut batcher, MS, 2);
    assert_eq!(batcher.room(1, |_| false).map_err(|_| batcher.waiting()), Err(2));
    assert_eq!(batcher.room(1, |number| *number == 1), Ok(()));
    assert_eq!(batcher.waiting(), 1);
    one(&mut batcher, MS, 3);
    batcher.offer(MS, &0, [(1, 4), (1, 4)].into_iter(), |number| [2, 3].contains(number)).unwrap();
    assert_eq!(batcher.waiting(), 2);
}
