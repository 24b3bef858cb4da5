//! `task report`: one page about a task.

use crate::support::{Served, run};

#[test]
fn report_has_the_figures_that_the_coordinator_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let out = path.to_str().unwrap();
    let privacy = "mechanism=distributed_discrete_gaussian,epsilon=8,delta=1e-5";
    let description = "description=<script>alert(1)</script> & more";
    let demo = ["--rounds", "2", "--participants", "8", "--privacy", privacy, "--set", description];
    let served = Served::demo(folder.path(), &demo);
    let answer = served.operate(&["task", "report", "demo", "--html", out]).data();
    assert_eq!((&answer["rounds"], &answer["versions"]), (&2.into(), &3.into()), "{answer}");
    let page = std::fs::read_to_string(&path).unwrap();
    let spent = served.operate(&["privacy", "show", "demo"]).data()["spent"]["published"].as_f64().unwrap();
    let newest = served.operate(&["model", "list", "demo"]).data()[0]["sha256"].as_str().unwrap().to_owned();
    let key = served.operate(&["audit", "head"]).data()["key"].as_str().unwrap().to_owned();
    for words in [
        "2 of 2 planned rounds were completed",
        "Updates were masked before they left the participants",
        "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more",
        "<td>distributed_discrete_gaussian</td>",
        &format!("epsilon {spent:.2}"),
        &newest,
        &key,
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    // It runs nothing and loads nothing.
    for part in ["<script", "<link", "<img", "src=", "url(", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
    let addresses: Vec<_> = page.matches("http").collect();
    assert_eq!(addresses.len(), page.matches("xmlns=\"http").count() + page.matches("http-equiv").count());
    drop(served);

    let ran = run(&["task", "report", "demo"]);
    assert!(ran.code == 2 && ran.stderr.contains("--html <FILE>"), "{ran}");
}
