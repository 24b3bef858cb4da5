//! Tests of a journal in a folder whose files are changed, copied or lost.

use std::sync::Arc;

use super::*;

/// The place outside the folder, like an app's key store.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<(Option<Generation>, bool)>>);

impl Outside {
    fn get(&self) -> Option<Generation> {
        self.0.lock().unwrap().0
    }

    fn set(&self, generation: Option<Generation>) {
        self.0.lock().unwrap().0 = generation;
    }

    /// Whether the process dies before the generation is saved.
    fn dies(&self, dies: bool) {
        self.0.lock().unwrap().1 = dies;
    }
}

impl GenerationStore for Outside {
    fn load(&self) -> Result<Option<Generation>, JournalError> {
        Ok(self.get())
    }

    fn save(&self, generation: &Generation) -> Result<(), JournalError> {
        let mut inner = self.0.lock().unwrap();
        if inner.1 {
            return Err(JournalError::io("write", io::Error::other("the process died")));
        }
        inner.0 = Some(*generation);
        Ok(())
    }

    fn place(&self) -> String {
        "the key store".to_owned()
    }
}

struct Scene {
    _temporary: tempfile::TempDir,
    folder: PathBuf,
    outside: Outside,
}

impl Scene {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("deep/journal");
        Self { _temporary: temporary, folder, outside: Outside::default() }
    }

    fn open(&self) -> Result<FileJournal, JournalError> {
        FileJournal::open(&self.folder, JournalKey::new(Zeroizing::new([7; 32])), self.outside.clone())
    }

    /// Every file, as in a backup.
    fn copy(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    fn restore(&self, files: &[(PathBuf, Vec<u8>)]) {
        fs::remove_dir_all(&self.folder).unwrap();
        fs::create_dir_all(&self.folder).unwrap();
        files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }

    fn is_refused(&self, why: &str) {
        let error = self.open().map(|_| ()).unwrap_err();
        assert!(matches!(&error, JournalError::Restored { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

fn holds(journal: &FileJournal, name: &str, expected: &[u8]) {
    assert_eq!(journal.load(name).unwrap().unwrap().as_slice(), expected);
}

#[test]
fn records_come_back_after_a_restart() {
    let scene = Scene::new();
    let journal = scene.open().unwrap();
    assert!(journal.load("round").unwrap().is_none());
    journal.save("round", b"one").unwrap();
    journal.save("identity", b"me").unwrap();
    journal.save_parts("round", [b"t", b"wo"]).unwrap();
    holds(&journal, "round", b"two");
    drop(journal);
    let journal = scene.open().unwrap();
    holds(&journal, "round", b"two");
    holds(&journal, "identity", b"me");
    assert_eq!(scene.outside.get().unwrap().number, 3);
}

#[test]
fn every_earlier_copy_of_the_folder_is_refused() {
    let scene = Scene::new();
    let mut copies = vec![];
    for step in 0..4_u8 {
        let journal = scene.open().unwrap();
        journal.save(if step % 2 == 0 { "round" } else { "identity" }, &[step]).unwrap();
        drop(journal);
        copies.push(scene.copy());
    }
    let latest = copies.pop().unwrap();
    for earlier in &copies {
        scene.restore(earlier);
        scene.is_refused("the key store is at 4");
    }
    // One old record among the others, a missing record, a removed one, and an empty folder.
    let round =
        |files: &[(PathBuf, Vec<u8>)]| files.iter().find(|(path, _)| path.ends_with("round.record")).unwrap().clone();
    let mut mixed = latest.clone();
    mixed.retain(|(path, _)| !path.ends_with("round.record"));
    scene.restore(&mixed);
    scene.is_refused("\"round\" is missing");
    mixed.push(round(&copies[0]));
    scene.restore(&mixed);
    scene.is_refused("\"round\" is not the one");
    scene.restore(&[]);
    scene.is_refused("no sealed record");
    scene.restore(&latest);
    assert!(scene.open().is_ok());
    // And an outside store that is empty, or holds something else.
    scene.outside.set(None);
    scene.is_refused("knows of none");
    scene.outside.set(Some(Generation { number: 4, id: [0; 32] }));
    scene.is_refused("at generation 4");
    scene.outside.set(Some(Generation { number: 3, id: [0; 32] }));
    scene.is_refused("at generation 4");
}

/// A process dies between a record and its generation, before it sends anything. Then exactly one state can continue.
#[test]
fn of_two_states_that_follow_one_only_the_first_to_be_opened_goes_on() {
    let scene = Scene::new();
    let journal = scene.open().unwrap();
    journal.save("round", b"masks").unwrap();
    drop(journal);
    let before = scene.copy();
    let mut branches = vec![];
    for input in [b"input a", b"input b"] {
        scene.restore(&before);
        let journal = scene.open().unwrap();
        scene.outside.dies(true);
        assert!(journal.save("round", input).is_err());
        assert!(journal.load("round").is_err() && journal.save("round", b"else").is_err(), "open it again first");
        drop(journal);
        scene.outside.dies(false);
        branches.push(scene.copy());
    }
    // Both branches have sent nothing yet, so either may continue.
    scene.restore(&branches[0]);
    holds(&scene.open().unwrap(), "round", b"input a");
    // From here on, the other branch and the earlier state are refused.
    for other in [&branches[1], &before] {
        scene.restore(other);
        scene.is_refused("generation");
    }
    scene.restore(&branches[0]);
    holds(&scene.open().unwrap(), "round", b"input a");
}

#[test]
fn a_process_whose_folder_goes_on_elsewhere_writes_nothing_more() {
    let scene = Scene::new();
    let journal = scene.open().unwrap();
    journal.save("round", b"one").unwrap();
    scene.outside.set(Some(Generation { number: 2, id: [9; 32] }));
    let error = journal.save("round", b"two").unwrap_err();
    assert!(matches!(&error, JournalError::Restored { .. }), "{error}");
    holds(&journal, "round", b"one");
}

#[test]
fn records_from_before_there_were_seals_are_sealed_once() {
    let scene = Scene::new();
    fs::create_dir_all(&scene.folder).unwrap();
    for (name, rest) in [("identity", "me"), ("round", "masks")] {
        fs::write(scene.folder.join(format!("{name}.record")), format!("tributary record{rest}")).unwrap();
    }
    fs::write(scene.folder.join("round.draft"), b"tributary record that was cut off").unwrap();
    let clear = scene.copy();
    // The process dies while it seals them.
    drop(scene.open().unwrap());
    let sealed = scene.copy();
    assert!(
        sealed.iter().all(|(_, bytes)| !bytes.windows(5).any(|window| window == b"masks")),
        "nothing clear is left"
    );
    let number = scene.outside.get().unwrap().number;
    let journal = scene.open().unwrap();
    holds(&journal, "identity", b"tributary recordme");
    holds(&journal, "round", b"tributary recordmasks");
    assert_eq!((number, scene.outside.get().unwrap().number), (2, 2), "nothing was left to be sealed");
    drop(journal);
    scene.restore(&clear);
    scene.is_refused("no sealed record");
}

#[test]
fn sealing_goes_on_where_it_was_cut_off() {
    let scene = Scene::new();
    fs::create_dir_all(&scene.folder).unwrap();
    for name in ["identity", "round"] {
        fs::write(scene.folder.join(format!("{name}.record")), b"tributary record").unwrap();
    }
    scene.outside.set(Some(Generation { number: 0, id: [1; 32] }));
    scene.outside.dies(true);
    assert!(scene.open().is_err());
    scene.outside.dies(false);
    let half = scene.copy();
    // The record that is still unsealed must be the original one.
    let clear = half.iter().find(|(_, bytes)| bytes.as_slice() == b"tributary record").unwrap();
    fs::write(&clear.0, b"tributary record of another state").unwrap();
    scene.is_refused("is not the one");
    scene.restore(&half);
    let journal = scene.open().unwrap();
    holds(&journal, "identity", b"tributary record");
    holds(&journal, "round", b"tributary record");
}

#[test]
fn a_save_that_fails_leaves_the_old_record() {
    let scene = Scene::new();
    let journal = scene.open().unwrap();
    journal.save("round", b"old").unwrap();
    // A folder at the draft's path: the write fails, as on a full disk.
    fs::create_dir(scene.folder.join("round.draft")).unwrap();
    let error = journal.save("round", b"new").unwrap_err();
    assert!(error.to_string().contains("could not write"), "{error}");
    holds(&journal, "round", b"old");
    fs::remove_dir(scene.folder.join("round.draft")).unwrap();
    journal.save("round", b"new").unwrap();
    holds(&journal, "round", b"new");
}

#[test]
fn a_draft_left_by_a_crash_is_not_a_record() {
    let scene = Scene::new();
    fs::create_dir_all(&scene.folder).unwrap();
    fs::write(scene.folder.join("round.draft"), b"half").unwrap();
    let journal = scene.open().unwrap();
    assert!(journal.load("round").unwrap().is_none());
    assert!(!scene.folder.join("round.draft").exists());
    journal.save("round", b"whole").unwrap();
    holds(&journal, "round", b"whole");
}

#[test]
fn two_participants_cannot_share_a_folder() {
    let scene = Scene::new();
    let first = scene.open().unwrap();
    assert!(matches!(scene.open(), Err(JournalError::InUse(_))));
    drop(first);
    assert!(scene.open().is_ok());
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    fs::create_dir_all(&scene.folder).unwrap();
    fs::set_permissions(&scene.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let journal = scene.open().unwrap();
    journal.save("identity", b"key").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scene.folder), 0o700);
    assert_eq!(mode(&scene.folder.join("identity.record")), 0o600);
}
