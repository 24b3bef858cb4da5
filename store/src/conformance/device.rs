//! Guarantees of lists of devices.

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason::{self, AskedFor, ChosenFailed, TransferCostsMore};
use federation::round::{Round, RoundState};

use super::sample::{after, digest, moved, round, task, task_id};
use crate::entity::device::{DeviceFilter, DeviceName, DeviceUse};
use crate::entity::noised_sum::{NoisedSumRow, SumWork};
use crate::entity::round::RoundFilter;
use crate::entity::token::TaskScope;
use crate::{Result, Store, Transaction};

/// The sum of round `number`, released at `blob` milliseconds.
fn sum(of: u128, number: u32, blob: u8, work: Option<SumWork>) -> NoisedSumRow {
    let (attempt, created_at) = (round(of, number, 1).key, after(blob.into()));
    NoisedSumRow { attempt, blob: digest(blob), participants: 1, created_at, work }
}

/// Work that the processor added, and a GPU unmasked unless it failed.
fn by(coordinator: Option<&str>, failure: Option<&str>) -> Option<SumWork> {
    let (unmask_device, unmask_because) = if failure.is_some() { ("cpu", ChosenFailed) } else { ("gpu", AskedFor) };
    Some(SumWork {
        coordinator: coordinator.map(str::to_owned),
        sum_device: "cpu".to_owned(),
        sum_because: Some(TransferCostsMore),
        unmask_device: unmask_device.to_owned(),
        unmask_because: Some(unmask_because),
        device_failure: failure.map(str::to_owned),
        sum_ms: 1,
        unmask_ms: 1,
        keystream_bytes: 1,
    })
}

fn name(device: &str, coordinator: Option<&str>) -> DeviceName {
    DeviceName { device: device.to_owned(), coordinator: coordinator.map(str::to_owned) }
}

/// The expected use of a device: the number of its sums, and the newest of them.
fn used(
    name: DeviceName,
    sums: u64,
    last: &NoisedSumRow,
    added: &[(DeviceReason, u64)],
    unmasked: &[(DeviceReason, u64)],
    failure: Option<&str>,
) -> DeviceUse {
    DeviceUse {
        name,
        sums,
        added: BTreeMap::from_iter(added.iter().copied()),
        unmasked: BTreeMap::from_iter(unmasked.iter().copied()),
        last: last.attempt,
        last_at: last.created_at,
        last_failure: failure.map(str::to_owned),
    }
}

/// Stores the sums, each with a round of its own.
async fn released(tx: &mut Transaction<'_>, sums: &[NoisedSumRow]) -> Result<()> {
    for sum in sums {
        let opened = Round { key: sum.attempt, ..round(1, sum.attempt.round, 1) };
        tx.insert_round(&opened).await?;
        assert!(tx.transition_round(&opened, &moved(&opened, RoundState::Cancelled, after(1))).await?);
        assert!(tx.insert_noised_sum(sum).await?);
    }
    Ok(())
}

/// Lists devices of all coordinators with counts and reasons, page by page.
pub async fn devices_are_told_apart_by_their_coordinators(store: &Store) {
    let (north, south) = (Some("north"), Some("south"));
    let older = SumWork { sum_because: None, unmask_because: None, ..by(None, None).unwrap() };
    let sums = &[
        sum(1, 1, 1, by(north, None)),
        sum(1, 2, 2, by(north, Some("gpu: lost"))),
        sum(1, 3, 3, by(north, Some("gpu: it gave a wrong answer"))),
        sum(1, 4, 4, by(north, None)),
        sum(1, 5, 5, by(south, None)),
        sum(1, 6, 6, Some(older)),
        sum(1, 7, 7, None),
    ];
    let devices = &[
        used(name("cpu", None), 1, &sums[5], &[], &[], None),
        used(
            name("cpu", north),
            4,
            &sums[3],
            &[(TransferCostsMore, 4)],
            &[(ChosenFailed, 2)],
            Some("gpu: it gave a wrong answer"),
        ),
        used(name("cpu", south), 1, &sums[4], &[(TransferCostsMore, 1)], &[], None),
        used(name("gpu", None), 1, &sums[5], &[], &[], None),
        used(name("gpu", north), 2, &sums[3], &[], &[(AskedFor, 2)], None),
        used(name("gpu", south), 1, &sums[4], &[], &[(AskedFor, 1)], None),
    ];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let all = &DeviceFilter::default();
                tx.insert_task(&task(1, "one")).await?;
                assert_eq!(tx.devices(all, None, 9).await?, []);
                released(tx, sums).await?;
                assert_eq!(tx.devices(all, None, 9).await?, devices);
                assert_eq!(tx.devices(all, None, 2).await?, devices[..2]);
                assert_eq!(tx.devices(all, Some(&devices[1].name), 2).await?, devices[2..4]);
                assert_eq!(tx.devices(all, Some(&devices[5].name), 2).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Devices are filtered by task, by scope and by time.
pub async fn devices_are_narrowed_down(store: &Store) {
    let sums = &[sum(1, 1, 1, by(Some("north"), None)), sum(2, 1, 2, by(Some("north"), Some("gpu: lost")))];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_task(&task(2, "two")).await?;
                released(tx, sums).await?;
                let of = |task: Option<u128>, scope: &[u128], since: Option<i64>| DeviceFilter {
                    task: task.map(task_id),
                    since: since.map(after),
                    scope: match scope {
                        [] => TaskScope::All,
                        tasks => TaskScope::Only(tasks.iter().copied().map(task_id).collect()),
                    },
                };
                let cpu = |sums, last, unmasked: &[_], failure| {
                    used(name("cpu", Some("north")), sums, last, &[(TransferCostsMore, sums)], unmasked, failure)
                };
                let gpu = used(name("gpu", Some("north")), 1, &sums[0], &[], &[(AskedFor, 1)], None);
                let (one, two) = (
                    vec![cpu(1, &sums[0], &[], None), gpu.clone()],
                    vec![cpu(1, &sums[1], &[(ChosenFailed, 1)], Some("gpu: lost"))],
                );
                let none = Vec::new();
                let both = vec![cpu(2, &sums[1], &[(ChosenFailed, 1)], Some("gpu: lost")), gpu];
                for (filter, expected) in [
                    (of(None, &[], None), &both),
                    (of(None, &[1, 2], None), &both),
                    (of(Some(1), &[], None), &one),
                    (of(None, &[1], None), &one),
                    (of(Some(2), &[1, 2], None), &two),
                    (of(None, &[], Some(2)), &two),
                    (of(Some(2), &[1], None), &none),
                    (of(None, &[], Some(3)), &none),
                ] {
                    assert_eq!(tx.devices(&filter, None, 9).await?, *expected, "{filter:?}");
                }
                let nobody = DeviceFilter { scope: TaskScope::Only(Vec::new()), ..DeviceFilter::default() };
                assert_eq!(tx.devices(&nobody, None, 9).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Rounds are filtered by the device of their latest attempt's sum.
pub async fn rounds_of_a_device_are_found(store: &Store) {
    let sums = &[
        sum(1, 1, 1, by(Some("north"), None)),
        sum(1, 2, 2, by(Some("south"), Some("gpu: lost"))),
        sum(1, 3, 3, by(None, None)),
        sum(1, 4, 4, None),
        sum(2, 1, 5, by(None, None)),
    ];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_task(&task(2, "two")).await?;
                released(tx, sums).await?;
                for (device, found) in [("cpu", &[3, 2, 1][..]), ("gpu", &[3, 1]), ("", &[])] {
                    let filter = RoundFilter { device: Some(device.to_owned()), ..RoundFilter::default() };
                    let rows = tx.rounds_where(task_id(1), &filter, None, 9).await?;
                    assert_eq!(rows.iter().map(|row| row.round.key.round).collect::<Vec<_>>(), found, "{device}");
                }
                tx.insert_round(&round(1, 1, 2)).await?;
                let filter = RoundFilter { device: Some("gpu".to_owned()), ..RoundFilter::default() };
                assert_eq!(
                    tx.rounds_where(task_id(1), &filter, None, 9).await?.len(),
                    1,
                    "the second attempt has no sum"
                );
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Of two sums of one moment the one of the later round is the last.
pub async fn sums_of_one_moment_have_an_order(store: &Store) {
    let later = NoisedSumRow { created_at: after(1), ..sum(1, 2, 2, by(Some("north"), None)) };
    let sums = &[sum(1, 1, 1, by(Some("north"), None)), later];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                released(tx, sums).await?;
                let last: Vec<_> = tx.devices(&DeviceFilter::default(), None, 9).await?;
                assert_eq!(last.iter().map(|device| device.last).collect::<Vec<_>>(), [sums[1].attempt; 2]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
