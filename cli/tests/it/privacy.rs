//! `privacy plan`: the figures of Google's dp-accounting come out of it, what it promises holds, and nonsense is refused.
//! Then the same promises kept by a federation, its ledger shown, and its budget at its end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Background, Ran, Served, finish, run, tributary};

/// 50 of 200 participants for 60 rounds, and what else is said.
const USUAL: &str = "--population 200 --cohort 50 --rounds 60 --delta 1e-5";

fn plan_as(format: &str, args: &str) -> Ran {
    let mut all = vec!["--format", format, "privacy", "plan"];
    all.extend(args.split_whitespace());
    run(&all)
}

fn planned(args: &str) -> Value {
    plan_as("json", args).data()
}

fn number(data: &Value, pointer: &str) -> f64 {
    data.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {data}"))
}

fn published(args: &str) -> f64 {
    number(&planned(args), "/epsilon/published")
}

/// `learning/tests/data/dp_oracle.csv`, kind poisson_gaussian: RDP on the same orders, PLD on the grid of 1e-4.
#[test]
fn both_accountants_say_what_the_oracle_says() {
    let rows = [
        ("--population 10000 --cohort 100 --rounds 1000 --delta 1e-5 --noise 1", 2.10136652542, 1.82824364559),
        ("--population 10000 --cohort 100 --rounds 10000 --delta 1e-5 --noise 1.1", 5.63201067008, 5.19262012388),
        ("--population 10000 --cohort 10 --rounds 10000 --delta 1e-6 --noise 0.8", 1.70362528616, 0.947323863973),
        ("--population 200 --cohort 20 --rounds 1000 --delta 1e-5 --noise 2", 8.94695679582, 8.27929338167),
        ("--population 60000 --cohort 256 --rounds 14062 --delta 1e-5 --noise 1.1", 2.59655586979, 2.38168600223),
        ("--population 300 --cohort 300 --rounds 1000 --delta 1e-6 --noise 20", 8.84687435851, 8.30622505365),
    ];
    for (args, rdp, pld) in rows {
        let data = planned(args);
        let (got_rdp, got_pld) = (number(&data, "/accountant/rdp"), number(&data, "/accountant/pld"));
        assert!((got_rdp / rdp - 1.0).abs() < 1e-6, "{args}: RDP {got_rdp}, not {rdp}");
        // A finer grid may be below the oracle's, by what the grid of 1e-4 costs at most.
        assert!(got_pld > 0.98 * pld && got_pld < 1.02 * pld, "{args}: PLD {got_pld}, not {pld}");
        // What is released is discrete and rounded: its bound is no lower than the textbook's.
        assert!(number(&data, "/epsilon/published") >= 0.999 * got_pld, "{data}");
        assert!(number(&data, "/epsilon/cohort_known") >= number(&data, "/epsilon/published"), "{data}");
    }
}

/// With everybody in every round there is little noise at these multipliers, and much to be said: dp-accounting's figures.
#[test]
fn little_noise_for_everybody_is_never_said_to_cost_nothing() {
    for (noise, rounds, pld) in [(0.3, 1, 19.130_767), (0.2, 1, 33.103_732), (0.1, 1, 91.817_289), (0.3, 60, 442.526)] {
        let args = format!("--population 50 --cohort 50 --rounds {rounds} --delta 1e-5 --noise {noise}");
        let got = number(&planned(&args), "/accountant/pld");
        assert!(got >= 0.9999 * pld && got < 1.001 * pld, "{args}: {got}, not {pld}");
    }
}

#[test]
fn an_epsilon_is_kept_with_the_least_noise() {
    let data = planned(&format!("{USUAL} --epsilon 8"));
    let (z, epsilon) = (number(&data, "/noise_multiplier"), number(&data, "/epsilon/published"));
    assert!(epsilon <= 8.0 && epsilon > 7.99, "{data}");
    assert_eq!(planned(&format!("{USUAL} --noise {z}"))["epsilon"], data["epsilon"]);
    assert!(published(&format!("{USUAL} --noise {}", 0.999 * z)) > 8.0);
}

#[test]
fn the_coordinator_has_an_epsilon_where_it_is_not_trusted() {
    for (mechanism, trusted) in [
        ("central_gaussian", true),
        ("tree", true),
        ("banded_matrix", true),
        ("distributed_discrete_gaussian", false),
        ("distributed_skellam", false),
        ("local", false),
    ] {
        let args = format!("{USUAL} --noise 4 --mechanism {mechanism}");
        let data = planned(&args);
        assert_eq!(data["mechanism"], mechanism);
        let epsilon = &data["epsilon"];
        let said = plan_as("text", &args);
        if trusted {
            assert_eq!((&epsilon["server"], &epsilon["server_reason"]), (&Value::Null, &"server_trusted".into()));
            assert!(said.stdout.contains("server           none"), "{said}");
        } else {
            assert_eq!((&epsilon["server"], &epsilon["server_reason"]), (&epsilon["cohort_known"], &Value::Null));
            assert!(!said.stdout.contains("none"), "{said}");
        }
        // Shares count on those who are left of a small cohort, without colluders.
        let shares = mechanism.starts_with("distributed");
        assert_eq!(data["shares"].is_object(), shares, "{data}");
        assert!(!shares || (data["shares"]["smallest_cohort"] == 25 && data["shares"]["colluders"] == 3), "{data}");
    }
}

#[test]
fn sampling_is_what_was_asked_for() {
    let [poisson, fixed, none] = ["poisson", "fixed", "none"].map(|sampling| {
        let data = planned(&format!("{USUAL} --noise 4 --sampling {sampling}"));
        assert_eq!(data["sampling"], sampling);
        data
    });
    let of = |data: &Value| (number(data, "/epsilon/published"), number(data, "/epsilon/cohort_known"));
    assert_eq!(planned(&format!("{USUAL} --noise 4")), poisson, "Poisson is the default");
    assert_eq!(number(&poisson, "/sampling_rate"), 0.25);
    assert!(fixed["sampling_rate"].is_null());
    assert!(of(&poisson).0 < of(&fixed).0 && of(&poisson).1 < of(&fixed).1, "{poisson} {fixed}");
    assert_eq!(of(&none).0, of(&none).1);
    assert_eq!(of(&none).1, of(&poisson).1);
}

/// Under secure aggregation a task is charged by known cohorts, whatever is drawn: whoever plans must not believe the lower figure.
#[test]
fn a_figure_that_counts_a_secret_draw_says_under_which_setting_it_is_charged() {
    let rests_on = |rest: &str| {
        let args = match rest.strip_prefix("--population 50") {
            Some(rest) => format!("--population 50 --cohort 50 --rounds 60 --delta 1e-5 --noise 4 {rest}"),
            None => format!("{USUAL} --noise 4 {rest}"),
        };
        let (data, said) = (planned(&args), plan_as("text", &args));
        let is_said = said.stdout.contains("secure_aggregation.enabled = false");
        let gains = number(&data, "/epsilon/published") < number(&data, "/epsilon/cohort_known");
        let known = format!("{:.3}", number(&data, "/epsilon/cohort_known"));
        assert!(!is_said || said.stdout.matches(&known[..4]).count() >= 2, "and what is charged otherwise: {said}");
        assert_eq!(gains, is_said, "{said}");
        data["published_rests_on"].as_str().unwrap().to_owned()
    };
    for rest in ["", "--sampling fixed --accounting general"] {
        assert_eq!(rests_on(rest), "secret_draw_in_the_clear", "{rest}");
    }
    for rest in [
        "--sampling none",
        "--population 50 --sampling poisson",
        "--mechanism distributed_skellam",
        "--mechanism tree",
        "--mechanism local",
    ] {
        assert_eq!(rests_on(rest), "noise_alone", "{rest}");
    }
}

#[test]
fn loss_distributions_are_charged_and_the_general_bound_is_asked_for() {
    let args = format!("{USUAL} --epsilon 8");
    let (pld, general) = (planned(&args), planned(&format!("{args} --accounting general")));
    assert_eq!((&pld["accounting"], &general["accounting"]), (&"pld".into(), &"general".into()));
    let noise = number(&pld, "/noise_multiplier");
    assert!((1.41..1.425).contains(&noise) && noise < 0.7 * number(&general, "/noise_multiplier"), "{pld} {general}");
    assert!(number(&pld, "/epsilon/closeness/epsilon") > 0.0 && general["epsilon"]["closeness"].is_null());
    let said = plan_as("text", &args);
    assert!(said.stdout.contains("distance of discrete from continuous noise"), "{said}");
    assert_eq!(planned(&format!("{args} --accounting close")), pld, "as it was called");
}

#[test]
fn other_cohorts_and_rounds_are_compared_where_uploads_are_bounded() {
    let data = planned(&format!("{USUAL} --epsilon 8 --uploads 6000"));
    let best = &data["choices"][0];
    assert_eq!((&best["cohort"], &best["rounds"]), (&200.into(), &30.into()), "{data}");
    assert!(number(best, "/epsilon/cohort_known") <= 8.0, "{best}");
    assert!(planned(&format!("{USUAL} --epsilon 8"))["choices"].is_null());
    let said = plan_as("text", &format!("{USUAL} --epsilon 8 --uploads 6000"));
    assert!(
        said.stdout.contains("NOISE IN ALL") && said.stdout.contains("6 000") || said.stdout.contains("6,000"),
        "{said}"
    );
}

#[test]
fn noise_that_drowns_the_mean_is_warned_about() {
    let quiet = planned("--population 20000 --cohort 5000 --rounds 60 --delta 1e-5 --epsilon 8");
    assert!(number(&quiet, "/noise_to_signal") < 5.0);
    assert_eq!(quiet["warnings"], serde_json::json!([]));
    let args = format!("{USUAL} --epsilon 8 --parameters 1000000");
    let loud = planned(&args);
    // z sqrt(P) / m, and a little for rounding.
    let least = number(&loud, "/noise_multiplier") * 1000.0 / 50.0;
    let ratio = number(&loud, "/noise_to_signal");
    assert!(ratio > 5.0 && ratio >= least && ratio < 1.05 * least, "{ratio} {least}");
    let said = plan_as("text", &args);
    assert_eq!(said.code, 0, "{said}");
    assert!(said.stdout.contains("warning: the noise on the mean is"), "{said}");
}

#[test]
fn the_cohort_that_is_named_keeps_the_epsilon_and_one_fewer_does_not() {
    let at = |cohort: u64| {
        let noise = cohort as f64 / 50.0;
        published(&format!("--population 20000 --cohort {cohort} --rounds 60 --delta 1e-5 --noise {noise}"))
    };
    let args = "--population 20000 --cohort 50 --rounds 60 --delta 1e-5 --noise 1";
    let data = planned(&format!("{args} --want-epsilon 0.5"));
    let cohort = data["cohort_for"]["cohort"].as_u64().unwrap();
    assert_eq!(number(&data, "/cohort_for/epsilon"), 0.5);
    assert!(at(cohort) <= 0.5 && at(cohort - 1) > 0.5, "{cohort}");
    let half = planned(args);
    assert_eq!(number(&half, "/cohort_for/epsilon"), 0.5 * number(&half, "/epsilon/published"));
    assert!(planned(&format!("{args} --want-epsilon 1e-9"))["cohort_for"]["cohort"].is_null());
}

#[test]
fn people_are_told_everything() {
    let ran = plan_as("text", &format!("{USUAL} --epsilon 8 --want-epsilon 4"));
    assert_eq!(ran.code, 0, "{ran}");
    for words in [
        "60 rounds of about 50 of 200 participants (Poisson, q = 0.25), central_gaussian",
        "noise multiplier",
        "times the clipping norm",
        "published",
        "cohort_known",
        "sees the sum without it",
        "(RDP)",
        "(PLD)",
        "brings the published epsilon to 4.",
    ] {
        assert!(ran.stdout.contains(words), "{words:?} in {ran}");
    }
}

#[test]
fn nonsense_is_refused_with_what_would_be_right() {
    let of = |rest: &str| format!("--population 200 --cohort 50 --rounds 60 {rest}");
    let cases = [
        (of("--delta 1 --epsilon 8"), "--delta must be above 0 and below 1"),
        (of("--delta 0 --epsilon 8"), "--delta must be above 0 and below 1"),
        (of("--delta NaN --epsilon 8"), "--delta must be above 0 and below 1"),
        (of("--delta -0.5 --epsilon 8"), "--delta must be above 0 and below 1"),
        (format!("{USUAL} --epsilon 0"), "--epsilon must be finite and above 0"),
        (format!("{USUAL} --epsilon -1"), "--epsilon must be finite and above 0"),
        (format!("{USUAL} --epsilon inf"), "--epsilon must be finite and above 0"),
        (format!("{USUAL} --epsilon 1e-7"), "no noise multiplier up to"),
        (format!("{USUAL} --noise 0"), "--noise must be between 0.01 and 10000"),
        (format!("{USUAL} --noise -1"), "--noise must be between 0.01 and 10000"),
        (format!("{USUAL} --noise NaN"), "--noise must be between 0.01 and 10000"),
        (USUAL.to_owned(), "--epsilon <E>|--noise <Z>"),
        (format!("{USUAL} --epsilon 8 --noise 1"), "cannot be used with '--noise <Z>'"),
        (
            "--population 200 --cohort 201 --rounds 60 --delta 1e-5 --noise 1".to_owned(),
            "--cohort must be at most --population, 200, not 201",
        ),
        ("--population 200 --cohort 0 --rounds 60 --delta 1e-5 --noise 1".to_owned(), "--cohort"),
        ("--population 200 --cohort 50 --rounds 0 --delta 1e-5 --noise 1".to_owned(), "--rounds"),
        (format!("{USUAL} --noise 1 --parameters 0"), "--parameters must be 1 to 2^28"),
        (format!("{USUAL} --noise 1 --modulus-bits 40"), "--modulus-bits must be 16 to 32"),
        (format!("{USUAL} --noise 1 --modulus-bits 16 --parameters 10000000"), "modulus_bits"),
        (format!("{USUAL} --noise 1 --mechanism none"), "choose a mechanism"),
        (format!("{USUAL} --noise 1 --mechanism laplace"), "a mechanism is central_gaussian"),
        (format!("{USUAL} --noise 1 --accounting moments"), "an accounting is pld or general"),
        (format!("{USUAL} --noise 1 --sampling oort"), "--sampling"),
        (format!("{USUAL} --noise 1 --mechanism tree --sampling poisson"), "--sampling gains nothing with a tree"),
        (format!("{USUAL} --noise 1 --mechanism local --adaptive-clip"), "use a fixed clip"),
        (format!("{USUAL} --noise 1 --want-epsilon 0"), "--want-epsilon must be finite and above 0"),
        (format!("{USUAL} --noise 1 --dropouts 1"), "--dropouts must be a part of the cohort"),
        (
            format!("{USUAL} --noise 1 --mechanism distributed_skellam --dropouts 0.5 --colluders 0.5"),
            "at least one honest participant",
        ),
        (
            "--population 1000 --cohort 400 --rounds 60 --delta 1e-5 --noise 0.2 --modulus-bits 16 --parameters 1000 \
             --mechanism distributed_discrete_gaussian --sampling none --dropouts 0 --colluders 0"
                .to_owned(),
            "units in all would do",
        ),
    ];
    for (args, words) in cases {
        let ran = plan_as("json", &args);
        assert_eq!(ran.code, 2, "{args}: {ran}");
        assert_eq!(ran.envelope()["data"]["exit_code"], 2);
        assert!(ran.stderr.contains(words), "{args} does not say {words:?}: {ran}");
    }
}

#[test]
fn the_plot_is_well_formed_and_shows_both_curves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.svg");
    let file = path.to_str().unwrap();
    for (rounds, rest) in [(60, "--epsilon 8"), (1, "--noise 0.01"), (1_000_000, "--noise 30 --mechanism tree")] {
        let data = planned(&format!("--population 200 --cohort 50 --rounds {rounds} --delta 1e-5 {rest} --svg {file}"));
        assert_eq!(data["svg"], file);
        let svg = std::fs::read_to_string(&path).unwrap();
        assert_eq!(well_formed(&svg), Ok(()), "{svg}");
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains(">rounds</text>"), "{svg}");
        for name in ["published", "cohort_known"] {
            let drawn = format!("<path class=\"curve {name}\" d=\"M");
            let (_, line) = svg.split_once(&drawn).unwrap();
            let points = line.split('"').next().unwrap().matches('L').count();
            assert_eq!(points, rounds.min(240), "a point for every round, up to 240");
            assert!(svg.contains(&format!(">{name}: ")), "{svg}");
        }
        assert!(!svg.contains("NaN") && svg.len() < 40_000, "{}", svg.len());
    }
    let nowhere = plan_as("text", &format!("{USUAL} --epsilon 8 --svg /no/such/folder/plan.svg"));
    assert_eq!(nowhere.code, 15, "{nowhere}");
    assert!(nowhere.stderr.contains("/no/such/folder/plan.svg") && nowhere.stdout.is_empty(), "{nowhere}");
}

/// Every element is closed in its order, every attribute has its quotes, nothing is escaped wrongly.
fn well_formed(xml: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some((text, tag)) = rest.split_once('<') {
        if text.contains(['>', '&']) {
            return Err(format!("stray character in {text:?}"));
        }
        let (tag, after) = tag.split_once('>').ok_or("a tag without an end")?;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes something else"));
            }
        } else {
            let empty = tag.ends_with('/');
            let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
            let parts: Vec<&str> = attributes.split('"').collect();
            if parts.len().is_multiple_of(2)
                || parts.iter().step_by(2).any(|key| !key.is_empty() && !key.ends_with('='))
            {
                return Err(format!("attributes of <{tag}>"));
            }
            if !empty {
                open.push(name);
            }
        }
        rest = after;
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(()) } else { Err(format!("{open:?} is open before {rest:?}")) }
}

/// A small private federation, played to its end.
fn demo(more: &[&str]) -> Vec<Value> {
    let participants: &[&str] = if more.contains(&"--participants") { &[] } else { &["--participants", "8"] };
    let ran = run(&[&["--format", "json", "demo", "--rounds", "2"], participants, more].concat());
    assert_eq!(ran.code, 0, "{more:?}: {ran}");
    ran.events()
}

fn rounds(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "round" && event["state"] == "COMPLETED").collect()
}

/// What every private demo tells, whoever adds the noise.
fn keeps_its_promise(events: &[Value]) {
    let promised = &events[0]["privacy"];
    assert!(promised["spec"]["noise_multiplier"].as_f64().unwrap() > 0.1, "it was solved for: {promised}");
    let made = rounds(events);
    assert_eq!(made.len(), 2, "{events:?}");
    let spent: Vec<f64> = made.iter().map(|round| number(round, "/epsilon/published")).collect();
    assert!(0.0 < spent[0] && spent[0] < spent[1] && spent[1] <= 8.0, "{spent:?}");
    for round in made {
        assert!(round["cohort_metrics"].as_object().unwrap().is_empty(), "no metrics travel: {round}");
        // After one round of noise nothing may be guessed right; there is always a loss.
        let (accuracy, loss) = (number(round, "/metrics/accuracy"), number(round, "/metrics/loss"));
        assert!((0.0..=1.0).contains(&accuracy) && loss > 0.0, "the demo measures by itself: {round}");
        assert!(number(round, "/epsilon/cohort_known") >= number(round, "/epsilon/published"));
    }
    let finished = events.last().unwrap();
    assert_eq!(number(finished, "/privacy/epsilon/published"), spent[1]);
    assert_eq!((number(finished, "/privacy/budget"), number(finished, "/privacy/delta")), (8.0, 1e-5));
}

#[test]
fn a_demo_with_central_noise_shows_epsilon_beside_accuracy() {
    let privacy = "epsilon=8,delta=1e-5,mechanism=central_gaussian,clip=adaptive";
    let events = demo(&["--privacy", privacy, "--insecure-aggregation", "--participants", "24"]);
    keeps_its_promise(&events);
    let finished = events.last().unwrap();
    assert_eq!(finished["privacy"]["epsilon"]["server"], Value::Null);
    assert_eq!(finished["privacy"]["epsilon"]["server_reason"], "server_trusted");
    assert_ne!(number(finished, "/privacy/clip"), 1.0, "the norm has adapted");
}

/// Whoever took part never returns, so the second round has to do with those who have not.
#[test]
fn a_demo_along_a_tree_goes_on_with_those_who_are_left() {
    let privacy = "noise=2,delta=1e-3,mechanism=tree";
    let events = demo(&["--privacy", privacy, "--insecure-aggregation", "--participants", "9", "--cohort", "3"]);
    let made = rounds(&events);
    assert_eq!(made.len(), 2, "{events:?}");
    assert!(number(made[0], "/epsilon/published") <= number(made[1], "/epsilon/published"));
}

/// Nine in turns of three, more rounds than there are turns: whoever took part comes back three rounds later, under masks as well.
#[test]
fn a_demo_along_a_banded_matrix_goes_round_and_round() {
    let usual = ["--format", "json", "demo", "--participants", "9", "--rounds", "6", "--cohort", "3"];
    for more in [&["--insecure-aggregation"][..], &[]] {
        let ran = run(&[&usual[..], &["--privacy", "epsilon=8,delta=1e-5,mechanism=banded_matrix"], more].concat());
        assert_eq!(ran.code, 0, "{ran}");
        let events = ran.events();
        assert_eq!(events[0]["privacy"]["spec"]["separation"], 3, "{ran}");
        let spent: Vec<f64> = rounds(&events).iter().map(|round| number(round, "/epsilon/cohort_known")).collect();
        assert_eq!(spent.len(), 6, "{ran}");
        assert!(spent.windows(2).all(|pair| pair[0] < pair[1]) && spent[5] <= 8.0 && spent[5] > 7.99, "{spent:?}");
        // A second participation of somebody costs more than the rest of the first.
        assert!(spent[3] - spent[2] > spent[2] - spent[1], "{spent:?}");
    }
}

#[test]
fn a_banded_matrix_leaves_less_noise_in_models_than_a_tree() {
    let once = "--population 3000 --cohort 50 --rounds 60 --delta 1e-5 --epsilon 8";
    let tree = planned(&format!("{once} --mechanism tree"));
    let banded = planned(&format!("{once} --mechanism banded_matrix --participations 1"));
    // docs/PRIVACY.md, the table of correlated noise.
    for (data, z, mean, sums) in [(&tree, 1.470, 3.685, 4.462), (&banded, 0.9236, 1.847, 2.350)] {
        for (pointer, figure) in [("/noise_multiplier", z), ("/noise_to_signal", mean), ("/noise_on_sums", sums)] {
            assert!((number(data, pointer) / figure - 1.0).abs() < 1e-3, "{pointer}: {figure} in {data}");
        }
    }
    let said = plan_as("text", &format!("{USUAL} --epsilon 8 --mechanism banded_matrix --participations 2"));
    assert!(said.stdout.contains("each in 2 at most and 4 rounds apart"), "{said}");
    let refused = plan_as("text", &format!("{USUAL} --epsilon 8 --separation 4"));
    assert!(refused.code == 2 && refused.stderr.contains("--separation is for mechanism"), "{refused}");
}

#[test]
fn a_demo_whose_participants_add_the_noise_has_a_figure_for_the_coordinator() {
    let events = demo(&["--privacy", "epsilon=8,delta=1e-5", "--cohort", "8"]);
    keeps_its_promise(&events);
    let finished = events.last().unwrap();
    assert_eq!(finished["privacy"]["epsilon"]["server"], finished["privacy"]["epsilon"]["cohort_known"]);
    let session = &rounds(&events)[0]["secure_aggregation"];
    assert_eq!(session["included"], 8, "nothing but a sum was ever open: {session}");
}

#[test]
fn a_demo_whose_participants_train_ahead_keeps_its_promise_without_amplification() {
    let buffered = ["--mode", "buffered", "--participants", "16", "--cohort", "8"];
    for privacy in ["epsilon=8,delta=1e-5", "epsilon=8,delta=1e-5,mechanism=central_gaussian"] {
        keeps_its_promise(&demo(&[&["--privacy", privacy], &buffered[..]].concat()));
    }
}

#[test]
fn people_are_told_what_is_promised_and_what_was_spent() {
    let args =
        ["--privacy", "noise=4,delta=1e-5,mechanism=distributed_skellam", "--participants", "6", "--rounds", "1"];
    let ran = run(&[&["demo"], &args[..]].concat());
    assert_eq!(ran.code, 0, "{ran}");
    for words in [
        "EPSILON",
        "TEST ACC",
        "distributed_skellam, noise multiplier 4",
        "no limit on epsilon",
        "Participants report no",
        "to the coordinator itself",
        "may tell the coordinator their share",
    ] {
        assert!(ran.stdout.contains(words), "no {words:?}: {ran}");
    }
    assert!(!ran.stdout.contains("TRAIN LOSS"), "nothing of that travels: {ran}");
}

#[test]
fn a_budget_that_ends_early_ends_the_demo_with_the_last_model_and_the_ledger_stays() {
    // Planned for one round, asked for three.
    let privacy = "epsilon=8,delta=1e-5,mechanism=central_gaussian,rounds=1";
    let mut child = tributary()
        .args(["--format", "json", "demo", "--participants", "4", "--rounds", "3", "--privacy", privacy])
        .args(["--insecure-aggregation", "--inspect"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Background(child);
    let mut events: Vec<Value> = Vec::new();
    for line in lines {
        events.push(serde_json::from_str(&line.unwrap()).unwrap());
        if events.last().unwrap()["event"] == "inspecting" {
            break;
        }
    }
    let finished = &events[events.len() - 2];
    assert_eq!((&finished["event"], &finished["rounds"]), (&"finished".into(), &1.into()), "{finished}");
    assert_eq!(rounds(&events).len(), 1);
    let inspecting = events.last().unwrap();
    let text = |key: &str| inspecting[key].as_str().unwrap().to_owned();
    let served = Served {
        process,
        url: text("url"),
        ca: text("ca"),
        token: text("token"),
        signed: String::new(),
        health: String::new(),
    };

    let task = served.operate(&["task", "show", "demo"]).data();
    assert_eq!(task["status"], "BUDGET_EXHAUSTED");
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("spent.svg");
    let ledger = served.operate(&["privacy", "show", "demo", "--svg", svg.to_str().unwrap()]).data();
    assert_eq!(ledger["rounds_left"], 0);
    let releases = ledger["releases"].as_array().unwrap();
    assert_eq!((releases.len(), &releases[0]["round"], &releases[0]["participants"]), (1, &1.into(), &4.into()));
    assert_eq!(releases[0]["total"], ledger["spent"]);
    well_formed(&std::fs::read_to_string(svg).unwrap()).unwrap();
    let round = served.operate(&["round", "show", "demo", "1"]).data();
    assert_eq!(round["epsilon"], ledger["spent"]);

    let words = |args: &[&str]| {
        let ran = finish(
            tributary()
                .args(args)
                .env("TRIBUTARY_SERVER", &served.url)
                .env("TRIBUTARY_CA", &served.ca)
                .env("TRIBUTARY_TOKEN", &served.token),
        );
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout
    };
    assert!(words(&["task", "show", "demo"]).contains("Another round would spend more than the privacy budget"));
    let shown = words(&["privacy", "show", "demo"]);
    assert!(shown.contains("room for 0 more rounds") && shown.contains("\nMechanism   "), "{shown}");
    let all = words(&["privacy", "show"]);
    assert!(all.contains("central_gaussian") && all.contains("All together, on a participant of each: "), "{all}");
    assert!(words(&["round", "list", "demo"]).contains("EPSILON"));
    assert!(words(&["round", "show", "demo", "1"]).contains("published"));
}

#[test]
fn a_promise_that_is_none_is_refused_before_anything_starts() {
    for (privacy, words) in [
        ("epsilon=0", "privacy.epsilon: must be finite and above 0"),
        ("epsilon=-1", "privacy.epsilon: must be finite and above 0"),
        ("epsilon=8,delta=1", "privacy.delta: must be above 0 and below 1"),
        ("epsilon=8,noise=0", "without noise every budget is exceeded at once"),
        ("epsilon=8,clip=0", "privacy.clip.fixed: must be a normal number above 0"),
        ("epsilon=8,clip=NaN", "clip=NaN: a norm is expected"),
        ("epsilon=8,mechanism=magic", "central_gaussian"),
        ("epsilon=8,mechanism=tree", "take part once"),
        ("delta=1e-5", "privacy.noise_multiplier: must be given, or an epsilon to solve it for"),
        ("epsilon=8,clip=wide", "`adaptive`"),
        ("epsilon=inf", "privacy.epsilon: invalid type: string \"inf\""),
        ("epsilon=much", "privacy.epsilon: invalid type: string \"much\""),
        ("epsilon", "`epsilon` is no KEY=VALUE, such as epsilon=8"),
        ("epsilon=8,sigma=2", "privacy.sigma: unknown field `sigma`"),
        ("epsilon=8,mechanism=none", "privacy.mechanism: is \"none\", so no budget can be kept"),
        ("epsilon=8,accounting=exact", "unknown variant `exact`"),
        ("epsilon=8,sampling=often", "poisson, fixed or none"),
        ("epsilon=8,mechanism=tree,sampling=poisson", "take part once"),
        ("epsilon=8,mechanism=banded_matrix,separation=5", "come back after 1 rounds"),
        ("epsilon=8,mechanism=banded_matrix,participations=1", "need 200 participants"),
        ("epsilon=8,separation=4", "is for mechanism \"banded_matrix\""),
        ("epsilon=8,mechanism=local,clip=adaptive", "local noise drowns"),
    ] {
        let ran = run(&["--format", "json", "demo", "--privacy", privacy]);
        assert_eq!(ran.code, 2, "{privacy}: {ran}");
        assert!(ran.stderr.contains(words), "{privacy}: {ran}");
    }
    // What only the coordinator can say: so few that the noise on their count takes up everything.
    let ran = run(&["demo", "--participants", "8", "--privacy", "epsilon=8,clip=adaptive"]);
    assert_eq!(ran.code, 9, "{ran}");
    assert!(ran.stderr.contains("privacy.clip.adaptive") && ran.stderr.contains("a larger cohort"), "{ran}");
    let participant = ["--server", "https://localhost:1", "--ca", "/no/ca.pem", "--journal", "/no/such"];
    let ran = run(&[&["participant", "run", "--max-epsilon", "NaN"], &participant[..]].concat());
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("--max-epsilon must be finite and above 0"), "{ran}");
    let ran = run(&[&["participant", "run", "--lifetime-epsilon", "0"], &participant[..]].concat());
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("--lifetime-epsilon must be finite and above 0"), "{ran}");
}
