//! Schedules that broke something once.

use faults::{Flaws, Runner};

#[test]
fn what_was_found_once_stays_mended() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut runner = Runner::new(Flaws::default()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let schedule = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(runner.run(&schedule, None).unwrap().violation, None, "{}", file.display());
    }
}
