//! The app names the graphs that it trains by their digests.

use client_sdk::Digest;
use client_sdk::participant::machine::Settings;
use graph::{Element, Graph, Input, Output, Size, ValueId, encode};
use recipe::digest::sha256;
use serde_json::json;

use super::size::refusal;
use crate::support::settings;

fn graph() -> Graph {
    Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input { name: "x".to_owned(), element: Element::F32, shape: vec![Size::BATCH] }],
        parameters: vec![],
        constants: vec![],
        nodes: vec![],
        outputs: vec![Output { name: "y".to_owned(), value: ValueId(0) }],
    }
}

fn digest() -> Digest {
    sha256(&encode(&graph()).unwrap())
}

fn accepting(digest: Digest) -> Settings {
    Settings { accepted_graphs: vec![digest], ..settings() }
}

#[test]
fn other_graph_is_refused_before_its_model_is_fetched() {
    let told = refusal(&accepting(Digest([1; 32])), |world| {
        world.tweak = Some(|a| a.model.architecture = Some(json!({ "kind": "graph", "graph": graph(), "loss": {} })));
    });
    let expected = format!("the task's graph has the SHA-256 digest {}, which is not among", digest());
    assert!(told.starts_with(&expected), "{told}");
}
