//! The app limits the sizes that a participant accepts, independently of the announced sizes.

use client_sdk::RefusalCode;
use client_sdk::participant::machine::Settings;
use client_sdk::participant::snapshot;
use task_spec::{AdapterScope, Initial, Personalization, TensorDeclaration};
use wire::participant::{Assignment, SessionTerms};

use crate::support::assignments::{StatedDigest, TrainedAhead};
use crate::support::cohort::{Hub, TODAY};
use crate::support::device::{Device, cohort, finish, published, refusals, run_until};
use crate::support::{settings, task};

/// Returns one device's reason for leaving. It left at once, without fetching the model.
pub(super) fn refusal(settings: &Settings, spoil: impl FnOnce(&mut crate::support::cohort::World)) -> String {
    let hub = Hub::new(3, 1);
    hub.world(spoil);
    let mut devices: Vec<_> = (0..3).map(|index| Device::new(index, &hub, settings.clone())).collect();
    for _ in 0..60 {
        devices.iter_mut().filter(|device| device.ended.is_none()).for_each(|device| device.step(None));
    }
    let told = refusals(&devices[0]);
    assert!(!told.is_empty(), "{:?}", devices[0].events);
    hub.world(|world| {
        let is_made = |call: &str| world.calls.iter().any(|(_, made)| *made == call);
        assert!(!is_made("fetch") && !is_made("key_shares") && !is_made("upload"), "{told:?}: {:?}", world.calls);
    });
    told[0].clone()
}

fn one_tensor(assignment: &mut Assignment, shape: &[u64]) {
    let tensor = TensorDeclaration { name: "base".into(), shape: shape.to_vec(), init: Initial::Zeros };
    assignment.model.tensors = vec![tensor];
}

#[test]
fn a_model_above_the_limit_is_refused_before_anything_is_fetched() {
    type Spoil = fn(&mut Assignment);
    let spoils: [(&str, Spoil); 5] = [
        // The largest that the format has: a gigabyte.
        ("the model takes 1073741824 bytes, and this participant's limit is 256000000", |a| one_tensor(a, &[1 << 28])),
        ("the model takes 18446744073709551615 bytes", |a| one_tensor(a, &[u64::MAX, u64::MAX])),
        ("the model takes 256000004 bytes", |a| one_tensor(a, &[64_000_001])),
        ("the file of the model takes 256000001 bytes", |a| a.base.bytes = 256_000_001),
        ("what stays at home of the model takes 392000000 bytes", |a| {
            one_tensor(a, &[7000, 7000]);
            a.model.tensors.push(TensorDeclaration { name: "head".into(), shape: vec![1], init: Initial::Zeros });
            a.encoding.personalization = Some(Personalization::Lora {
                layers: vec!["base".into()],
                rank: 7000,
                alpha: None,
                adapters: AdapterScope::Personal,
                epochs: None,
                base_sha256: None,
            });
        }),
    ];
    for (expected, spoil) in spoils {
        let told = refusal(&settings(), |world| world.tweak = Some(spoil));
        assert!(told.starts_with(expected), "{expected}: {told}");
    }
}

#[test]
fn an_update_above_the_limit_is_refused_with_the_invitation_or_the_assignment() {
    let words: fn(&mut SessionTerms) = |terms| terms.words = 1 << 27;
    let told = refusal(&settings(), |world| world.tweak_terms = Some(words));
    assert!(told.starts_with("an encoded update takes 536870912 bytes"), "{told}");
    let settings = Settings { max_model_bytes: 1000, ..crate::support::in_the_clear() };
    let told = refusal(&settings, |world| {
        world.plain = true;
        world.tweak = Some(|a| a.metrics = (0..256).map(|number| number.to_string()).collect());
    });
    assert!(told.starts_with("an encoded update takes "), "{told}");
}

#[test]
fn nothing_is_trained_ahead_for_a_model_above_the_limit() {
    let told = refusal(&settings(), |world| {
        let served_doctored: fn(usize) -> bool = |_| false;
        world.ahead = Some(TrainedAhead { from: 0, max_staleness: 0, served_doctored, stated: StatedDigest::Honest });
        world.open(1, 1);
        world.tweak = Some(|a| one_tensor(a, &[1 << 28]));
    });
    assert!(told.starts_with("the model takes 1073741824 bytes"), "{told}");
}

#[test]
fn what_was_refused_and_why_is_known_to_the_next_process() {
    let hub = Hub::new(3, 1);
    hub.world(|world| world.tweak = Some(|a| one_tensor(a, &[1 << 28])));
    let mut devices = cohort(&hub);
    run_until(&mut devices, |device| device.journal.load(snapshot::REFUSALS).unwrap().is_some());
    let device = &mut devices[0];
    let kept = device.machine.refusals();
    let told = refusals(device);
    assert!(hub.world(|world| world.abandoned.is_empty()), "it is written before it is told");
    assert_eq!((kept.len(), kept[0].times, kept[0].code), (1, 1, Some(RefusalCode::TooLarge)));
    assert_eq!((&kept[0].reason, kept[0].place.task, kept[0].at), (&told[0], task(), TODAY));
    device.restart();
    assert_eq!(device.machine.refusals(), kept);
}

#[test]
fn a_model_that_takes_as_much_as_the_limit_is_taken() {
    let hub = Hub::new(3, 1);
    let file = hub.world(|world| world.assignment().base.bytes);
    let mut devices = cohort(&hub);
    for device in &mut devices {
        device.settings.max_model_bytes = file;
        device.restart();
    }
    finish(&hub, &mut devices);
    assert_eq!(published(&hub), [(1, vec![0, 1, 2])]);
    let told = refusal(&Settings { max_model_bytes: file - 1, ..settings() }, |_| ());
    assert_eq!(
        told,
        format!(
            "the file of the model takes {file} bytes, and this participant's limit is {} \
         (Builder::max_model_bytes)",
            file - 1
        )
    );
}
