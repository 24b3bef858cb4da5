//! Names of methods, and their defaults.

use super::*;

fn complete(json: &str, personal: &[&str]) -> (Personalization, Vec<String>) {
    let mut method: Personalization = serde_json::from_str(json).unwrap();
    let mut personal = personal.iter().map(|&pattern| pattern.to_owned()).collect();
    method.complete(&mut personal, "fc2.*", &["fc*.weight".to_owned()]);
    (method, personal)
}

#[test]
fn names_of_methods_are_read_as_papers_write_them_too() {
    for (text, name) in [
        ("fedper", "fed_per"),
        ("fedrep", "fed_rep"),
        ("fedbn", "fed_bn"),
        ("finetune", "fine_tune"),
        ("fine_tune", "fine_tune"),
        ("apfl", "apfl"),
    ] {
        let method = complete(&format!(r#"{{"method":"{text}"}}"#), &[]).0;
        assert_eq!(serde_json::to_value(&method).unwrap()["method"], name);
        assert_eq!(method.as_str(), name);
    }
}

#[test]
fn tensors_that_are_not_named_are_the_models_usual() {
    assert_eq!(complete(r#"{"method":"fed_per"}"#, &[]).1, ["fc2.*"]);
    assert_eq!(complete(r#"{"method":"fed_rep"}"#, &["fc1.*", "*.bias"]).1, ["fc1.*", "*.bias"]);
    assert_eq!(complete(r#"{"method":"fed_bn"}"#, &[]).1, ["*bias*"]);
    assert!(complete(r#"{"method":"ditto","lambda":1}"#, &[]).1.is_empty());
    for (json, expected) in [
        (r#"{"method":"lora","rank":4,"layers":[]}"#, "fc*.weight"),
        (r#"{"method":"lora","rank":4,"layers":["a"]}"#, "a"),
    ] {
        let (Personalization::Lora { layers, rank, .. }, personal) = complete(json, &[]) else { panic!("another") };
        assert_eq!((layers, rank, personal.len()), (vec![expected.to_owned()], 4, 0));
    }
}
