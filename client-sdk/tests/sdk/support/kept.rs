//! The model version in a journal, also after a process was killed.

use client_sdk::journal::Journal;
use client_sdk::{KeptModel, Model, Origin};

use super::device::{Device, EFFECTS};
use super::trainers::Nudge;
use super::{Coordinator, sha256, task};

/// Returns the version of the intact model in the journal.
pub(crate) fn version(journal: &dyn Journal) -> Option<u32> {
    let model = Model::load(journal, task()).unwrap()?;
    let Origin::Published { version, sha256: found } = model.origin() else { panic!("nobody personalizes") };
    assert_eq!(found, sha256(&Coordinator::published(false, version)));
    // As the coordinator of the tests publishes it: values that tell the round.
    assert!(model.parameters().values().iter().all(|value| *value == version as f32));
    Some(version)
}

/// Kills a process at each of its actions, with each effect. The model in its journal stays whole, and its version only
/// grows. At the end the journal has this version, and `check` gets the kept model.
pub(crate) fn kill_everywhere(
    fresh: impl Fn() -> Device<Coordinator, Nudge>,
    last: u32,
    check: impl Fn(&[KeptModel], &str),
) {
    let actions = fresh().run(500, |_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let what = format!("killed at {at}, effect {effect:?}");
            let (mut device, mut newest) = (fresh(), None);
            for number in 0..500 {
                device.step((number == at).then_some(effect));
                let found = version(&*device.journal);
                assert!(found >= newest, "{what}: {found:?} after {newest:?}");
                newest = found;
                if device.ended.is_some() {
                    break;
                }
            }
            assert_eq!(newest, Some(last), "{what}");
            check(&Model::kept(&*device.journal).unwrap(), &what);
        }
    }
}
