//! `privacy plan` reproduces the figures of Google's dp-accounting, its promises hold, and nonsense is refused.

use serde_json::Value;

use super::{number, well_formed};
use crate::support::{Ran, Served, run};

/// 50 of 200 participants for 60 rounds, with further flags.
const USUAL: &str = "--population 200 --cohort 50 --rounds 60 --delta 1e-5";

fn plan_as(format: &str, args: &str) -> Ran {
    let mut all = vec!["--format", format, "privacy", "plan"];
    all.extend(args.split_whitespace());
    run(&all)
}

fn planned(args: &str) -> Value {
    plan_as("json", args).data()
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
        // A finer grid may be below the oracle's, by at most the cost of the grid of 1e-4.
        assert!(got_pld > 0.98 * pld && got_pld < 1.02 * pld, "{args}: PLD {got_pld}, not {pld}");
        // The released sum is discrete and rounded: its bound is at least the textbook's.
        assert!(number(&data, "/epsilon/published") >= 0.999 * got_pld, "{data}");
        assert!(number(&data, "/epsilon/cohort_known") >= number(&data, "/epsilon/published"), "{data}");
    }
}

/// Full participation at these multipliers has little noise and a large epsilon: dp-accounting's figures.
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
        // Each is in a tree once.
        let usual = if mechanism == "tree" { USUAL.replace("200", "3000") } else { USUAL.to_owned() };
        let args = format!("{usual} --noise 4 --mechanism {mechanism}");
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
        // Shares depend on the remaining members of a small cohort, without colluders.
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

/// Under secure aggregation a task is charged by known cohorts, for any sampling: a plan must not use the lower figure.
#[test]
fn a_figure_that_counts_a_secret_draw_says_under_which_setting_it_is_charged() {
    let rests_on = |rest: &str| {
        let args = match rest.strip_prefix("--population 50") {
            Some(rest) => format!("--population 50 --cohort 50 --rounds 60 --delta 1e-5 --noise 4 {rest}"),
            // Each is in a tree once.
            None if rest.ends_with("tree") => format!("{} --noise 4 {rest}", USUAL.replace("200", "3000")),
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
fn plan_refuses_more_participations_than_limits_allow() {
    let all = "--population 200 --cohort 200 --rounds 15 --delta 1e-5 --epsilon 8";
    for (args, words) in [
        (
            format!("{all} --mechanism banded_matrix --separation 4"),
            "need 800 participants, not 200: with these, cohorts of at most 50, or a separation of at most 1, or at most 1 rounds",
        ),
        (format!("{all} --mechanism tree"), "need 3000 participants, not 200: with these, cohorts of at most 13"),
        (
            format!("{USUAL} --epsilon 8 --mechanism banded_matrix --participations 4"),
            "need 750 participants, not 200: with these, cohorts of at most 13",
        ),
    ] {
        let refused = plan_as("text", &args);
        assert!(refused.code == 2 && refused.stderr.contains(words), "{args}: {refused}");
    }
    // Recommendations keep to them, too.
    let population = 200;
    for mechanism in ["banded_matrix", "banded_matrix --separation 4"] {
        let data = planned(&format!("{USUAL} --epsilon 8 --mechanism {mechanism} --uploads 6000"));
        let choices = data["choices"].as_array().unwrap();
        assert!(choices.iter().any(|choice| choice["cohort"] == 200), "{data}");
        for choice in choices {
            let [cohort, rounds, separation] =
                ["cohort", "rounds", "separation"].map(|field| choice[field].as_u64().unwrap());
            assert!(cohort * separation.min(rounds) <= population, "{choice}");
        }
    }
    let data = planned(&format!("{USUAL} --epsilon 8 --mechanism banded_matrix --want-epsilon 1"));
    assert!(data["cohort_for"]["cohort"].is_null(), "larger cohorts come back too soon: {data}");
}

#[test]
fn plan_says_what_the_default_lifetime_allows() {
    // The sampled task of docs/PRIVACY.md: devices stop halfway.
    let sampled = planned(&format!("{USUAL} --epsilon 8"));
    let lifetime = &sampled["lifetime"];
    assert_eq!((&lifetime["epsilon"], &lifetime["delta"]), (&10.0.into(), &1e-5.into()));
    assert_eq!((&lifetime["allowed"], &lifetime["expected"], &lifetime["most"]), (&8.into(), &15.0.into(), &60.into()));
    let said = plan_as("text", &format!("{USUAL} --epsilon 8"));
    assert!(said.stdout.contains("allows 8 participations in this task; 15 are expected of each"), "{said}");
    assert!(said.stdout.contains("warning: devices at the default stop before the task is done"), "{said}");
    let enough = plan_as("text", &format!("{USUAL} --epsilon 8 --sampling none"));
    assert!(enough.stdout.contains("participations in this task, of 60 at most"), "{enough}");
    assert!(!enough.stdout.contains("devices at the default stop"), "{enough}");
}

#[test]
fn weak_promises_are_warned_about() {
    let said = plan_as("text", "--population 200 --cohort 50 --rounds 60 --delta 0.5 --epsilon 1000");
    assert!(said.stdout.contains("warning: epsilon 1000.0 is above 20"), "{said}");
    assert!(said.stdout.contains("warning: delta 5e-1 is above one over the population"), "{said}");
    let demo = run(&["demo", "--rounds", "1", "--participants", "5", "--privacy", "epsilon=1000,delta=0.5"]);
    assert!(demo.code == 0 && demo.stderr.contains("warning: epsilon"), "{demo}");
    assert!(demo.stderr.contains("warning: delta 5e-1"), "{demo}");
}

#[test]
fn create_warns_of_weak_promises_and_spent_lifetimes() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let create = |epsilon: &str, delta: &str, more: &[&str]| {
        let file = folder.path().join("task.toml");
        let task = "name = \"t\"\n[model]\narchitecture = { kind = \"linear\", inputs = 3, classes = 2 }\n[rounds]\ncount = 60\n\
             [selection]\ncohort = { fraction = 0.25 }\n[secure_aggregation]\nenabled = false\n[privacy]\n\
             mechanism = \"central_gaussian\"\nclip = { fixed = 1.0 }\npopulation = 200\nsampling = { poisson = 0.25 }\n";
        std::fs::write(&file, format!("{task}epsilon = {epsilon}\ndelta = {delta}\n")).unwrap();
        served.operate(&[&["task", "create", file.to_str().unwrap()][..], more].concat())
    };
    let weak = create("1000", "0.5", &["--check"]);
    assert_eq!(weak.code, 0, "{weak}");
    assert!(weak.stderr.contains("warning: epsilon 1000.0 is above 20"), "{weak}");
    assert!(weak.stderr.contains("warning: delta 5e-1 is above one over the population"), "{weak}");
    let refused = create("8", "1.0", &["--check"]);
    assert!(refused.code != 0 && refused.stderr.contains("privacy.delta"), "{refused}");
    let usual = create("8", "1e-5", &[]);
    assert_eq!(usual.code, 0, "{usual}");
    assert!(!usual.stderr.contains("warning: epsilon") && !usual.stderr.contains("warning: delta"), "{usual}");
    assert!(usual.stderr.contains("allows 8 participations in this task; 15 are expected of each"), "{usual}");
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
    for (population, rounds, rest) in [
        (200, 60, "--epsilon 8"),
        (200, 1, "--noise 0.01"),
        // Each is in a tree once.
        (50_000_000, 1_000_000, "--noise 30 --mechanism tree"),
    ] {
        let args = format!("--population {population} --cohort 50 --rounds {rounds} --delta 1e-5 {rest} --svg {file}");
        let data = planned(&args);
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
    let many = USUAL.replace("200", "1500");
    let limits = "--participations 2 --separation 4";
    let said = plan_as("text", &format!("{many} --epsilon 8 --mechanism banded_matrix {limits}"));
    assert!(said.stdout.contains("each in 2 at most and 4 rounds apart"), "{said}");
    let refused = plan_as("text", &format!("{USUAL} --epsilon 8 --separation 4"));
    assert!(refused.code == 2 && refused.stderr.contains("--separation is for mechanism"), "{refused}");
}

/// The task of docs/PRIVACY.md: the noise for one participation, not for ten rounds.
#[test]
fn plan_of_counted_participations_needs_the_noise_of_as_many_releases() {
    let task = "--population 1000 --cohort 100 --rounds 10 --delta 1e-5 --epsilon 1";
    for (mechanism, once, often) in
        [("distributed_discrete_gaussian", 3.7306, 11.797), ("distributed_skellam", 4.045, 12.79)]
    {
        let task = format!("{task} --mechanism {mechanism}");
        for (more, z) in [("--participations 1", once), ("--sampling none", often), ("--participations 10", often)] {
            let data = planned(&format!("{task} {more}"));
            let noise = number(&data, "/noise_multiplier");
            assert!((noise / z - 1.0).abs() < 2e-3, "{mechanism} {more}: {noise}");
            assert_eq!((&data["sampling"], &data["published_rests_on"]), (&"none".into(), &"noise_alone".into()));
        }
        let data = planned(&format!("{task} --participations 1"));
        let lifetime = &data["lifetime"];
        assert_eq!(
            (&lifetime["allowed"], &lifetime["expected"], &lifetime["most"]),
            (&1.into(), &1.0.into(), &1.into())
        );
        let said = plan_as("text", &format!("{task} --participations 2"));
        assert!(said.stdout.contains("drawn anyhow, each in 2 at most, distributed"), "{said}");
        for (more, words) in [
            (
                "--participations 1 --population 999",
                "need 1000 participants, not 999: with these, cohorts of at most 99, or 2",
            ),
            ("--participations 11", "--participations must be at least 1 and at most the rounds, not 11"),
            ("--participations 1 --sampling poisson", "--sampling gains nothing where participations are counted"),
            ("--separation 5", "--participations must be given with a separation"),
        ] {
            let task = if more.contains("population") { task.replace("--population 1000 ", "") } else { task.clone() };
            let refused = plan_as("text", &format!("{task} {more}"));
            assert!(refused.code == 2 && refused.stderr.contains(words), "{more}: {refused}");
        }
    }
    let choices = planned(&format!("{task} --mechanism distributed_skellam --participations 1 --uploads 1000"));
    let best = &choices["choices"][0];
    assert!(best["cohort"].as_u64().unwrap() * best["rounds"].as_u64().unwrap() <= 1000, "{choices}");
}

#[test]
fn mechanisms_are_compared_for_one_epsilon() {
    let compare = |format: &str, args: &str| {
        let mut all = vec!["--format", format, "privacy", "compare"];
        all.extend(args.split_whitespace());
        run(&all)
    };
    let people = "--population 1000 --cohort 100 --rounds 10 --delta 1e-5 --epsilon 1";
    let data = compare("json", people).data();
    let of = |mechanism: &str, participations: Value| {
        let all = data["mechanisms"].as_array().unwrap();
        let found = all.iter().find(|one| one["mechanism"] == mechanism && one["participations"] == participations);
        found.unwrap_or_else(|| panic!("{mechanism} {participations}: {data}"))
    };
    let noise = |one: &Value| number(one, "/choice/noise_in_all");
    let counted = of("distributed_skellam", 1.into());
    // Charged for one release instead of ten: about a root of ten less noise.
    let ratio = noise(of("distributed_skellam", Value::Null)) / noise(counted);
    assert!((2.8..3.4).contains(&ratio), "{ratio}");
    for one in data["mechanisms"].as_array().unwrap().iter().filter(|one| !one["choice"].is_null()) {
        let published = number(one, "/choice/epsilon/published");
        assert!(published <= 1.0 && published > 0.99, "{one}");
    }
    let order: Vec<f64> =
        data["mechanisms"].as_array().unwrap().iter().filter(|one| !one["choice"].is_null()).map(noise).collect();
    assert!(order.is_sorted() && order.len() >= 6, "{order:?}");
    // The same figures as the plan of that mechanism.
    let plan = planned(
        "--population 1000 --cohort 100 --rounds 10 --delta 1e-5 --epsilon 1 --mechanism distributed_skellam --participations 1",
    );
    assert_eq!(number(counted, "/choice/noise_multiplier"), number(&plan, "/noise_multiplier"));
    let words = compare("text", people).to_string();
    for part in ["secret draw, unmasked", "each in 1 at most", "devices allow 1, 1 expected"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let impossible = compare("text", "--population 10 --cohort 20 --rounds 10 --delta 1e-5 --epsilon 1");
    assert!(impossible.to_string().contains("must be at most --population"), "{impossible}");
}
