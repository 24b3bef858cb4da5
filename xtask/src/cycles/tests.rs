//! Small crates with and without cycles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Graph, graph};

/// The graph of a crate given as (file, text); the first file is the root.
fn of(files: &[(&str, &str)]) -> Graph {
    let texts: BTreeMap<PathBuf, String> =
        files.iter().map(|(file, text)| (PathBuf::from(file), (*text).to_owned())).collect();
    graph(Path::new(files[0].0), &|file| texts.get(file).cloned()).unwrap()
}

fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    of(files).cycles(Path::new("x"))
}

#[test]
fn two_modules_that_use_each_other_are_a_cycle() {
    let found = cycles(&[
        ("x/src/lib.rs", "mod a;\nmod b;\nmod c;"),
        ("x/src/a.rs", "use crate::b::B;\npub struct A(B);"),
        ("x/src/b.rs", "pub struct B;\nfn f() {\n    super::a::A::new();\n}"),
        ("x/src/c.rs", "use super::a::A;\nuse super::b;\nfn f(_: A, _: b::B) {}"),
    ]);
    assert_eq!(found, ["a cycle among 2 modules: a -> b (src/a.rs:1) -> a (src/b.rs:3)"]);
}

#[test]
fn a_longer_cycle_is_shown_by_its_shortest_path() {
    let found = cycles(&[
        ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("src/a.rs", "use crate::b::B; pub struct A(B);"),
        ("src/b.rs", "use crate::c::C; pub struct B(C);"),
        ("src/c.rs", "use crate::{d, a::A}; pub struct C(A, d::D);"),
        ("src/d.rs", "use crate::c::C; pub struct D(C);"),
    ]);
    assert_eq!(found, ["a cycle among 4 modules: c -> d (src/c.rs:1) -> c (src/d.rs:1)"]);
}

#[test]
fn a_reexport_is_no_edge_and_is_followed_to_who_defines() {
    let siblings = [
        ("src/lib.rs", "mod top; pub use top::{One, two::*};"),
        (
            "src/top/mod.rs",
            "mod one; mod two; pub use one::One; pub(crate) use self::two::Two as Second; pub fn help() {}",
        ),
        ("src/top/one.rs", "use super::Second; pub struct One(Second, crate::Three); fn f() { super::help() }"),
        ("src/top/two.rs", "pub struct Two; pub struct Three;"),
    ];
    assert_eq!(cycles(&siblings), [""; 0]);
    assert_eq!(
        of(&siblings).way("top::one", "top::two", Path::new("")).unwrap(),
        "top::one -> top::two (src/top/one.rs:1)"
    );
}

#[test]
fn a_name_that_the_parent_reexports_and_uses_is_an_edge() {
    let found = cycles(&[
        ("src/lib.rs", "mod child; pub(crate) use child::Child; struct Help; fn f(_: Child) {}"),
        ("src/child.rs", "use super::Help; pub struct Child(Help);"),
    ]);
    assert_eq!(found, ["a cycle among 2 modules: crate -> child (src/lib.rs:1) -> crate (src/child.rs:1)"]);
}

#[test]
fn a_child_that_uses_its_parent_while_the_parent_calls_it_is_a_cycle() {
    let calls = "mod child { use super::Help; pub fn call(_: Help) {} } struct Help; fn f() { child::call(Help) }";
    assert_eq!(cycles(&[("src/lib.rs", calls)]).len(), 1);
    let declares = "mod child { use super::Help; pub fn call(_: Help) {} } struct Help;";
    assert_eq!(cycles(&[("src/lib.rs", declares)]).len(), 0);
}

#[test]
fn code_for_tests_does_not_count() {
    let test = "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(all(test, unix))] use crate::b::B; \
                impl A { #[cfg(test)] fn f() { crate::b::f() } } #[test] fn t() { crate::b::f() }";
    let b = "use crate::a::A; pub struct B(A); pub fn f() {}";
    assert_eq!(cycles(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", test), ("src/b.rs", b)]), [""; 0]);
    let either = "pub struct A; #[cfg(any(test, feature = \"x\"))] use crate::b::B;";
    assert_eq!(cycles(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", either), ("src/b.rs", b)]).len(), 1);
}

#[test]
fn paths_in_macros_globs_and_attributes_count() {
    let b = ("src/b.rs", "use crate::a::A; pub struct B(A); pub fn f() {} pub fn ser() {}");
    for a in [
        "pub struct A; fn f() { assert!(x.y(crate::b::f())); }",
        "pub struct A; use crate::b::*; fn g() { f() }",
        "pub struct A; use crate::b; fn g() { format!(\"{}\", b::f()); }",
        "pub struct A; #[derive(S)] struct C { #[serde(with = \"crate::b\")] x: u8 }",
        "pub struct A; #[derive(E)] #[error(\"{n}\", n = crate::b::f())] struct C;",
        "pub struct A; macro_rules! m { () => { $crate::b::f() } }",
    ] {
        assert_eq!(cycles(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", a), b]).len(), 1, "{a}");
    }
    for a in ["pub struct A; use crate::b;", "pub struct A; fn g(b: A) { b.f() }", "pub struct A; fn g() { m!(x.f) }"] {
        assert_eq!(cycles(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", a), b]), [""; 0], "{a}");
    }
}

#[test]
fn imports_of_each_other_and_of_other_crates_lead_nowhere() {
    let a = "use crate::b::Ghost; use serde::de::Error; pub struct A(Ghost, Error, serde::b::B);";
    let b = "pub use crate::a::Ghost; use super::super::a::A; fn f(_: A) {}";
    assert_eq!(cycles(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", a), ("src/b.rs", b)]), [""; 0]);
}

#[test]
fn a_way_between_two_parts_is_found_through_others() {
    let crate_of = |middle| {
        of(&[
            ("src/lib.rs", "mod http { mod get { fn f() { crate::middle::f() } } } mod middle; mod work; mod working;"),
            ("src/middle.rs", middle),
            ("src/work/mod.rs", "pub mod step;"),
            ("src/work/step.rs", "pub fn f() {}"),
            ("src/working.rs", "pub fn f() {}"),
        ])
    };
    let way = crate_of("pub fn f() { crate::work::step::f() }").way("http", "work", Path::new(""));
    assert_eq!(way.unwrap(), "http::get -> middle (src/lib.rs:1) -> work::step (src/middle.rs:1)");
    let apart = crate_of("pub fn f() { crate::working::f() }");
    assert_eq!(apart.way("http", "work", Path::new("")), None);
    assert_eq!(apart.way("work", "http", Path::new("")), None);
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let read = |file: &Path| file.ends_with("lib.rs").then(|| "mod lost;".to_owned());
    assert!(graph(Path::new("src/lib.rs"), &read).is_err());
}
