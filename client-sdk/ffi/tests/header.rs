//! The committed header is the one that the code makes. `TRIBUTARY_WRITE_HEADER=1 cargo test -p tributary-ffi --test header`
//! writes it.

use std::path::Path;

use cbindgen::{Builder, Config};

#[test]
#[expect(clippy::disallowed_methods, reason = "a switch for the person who changes the header")]
fn the_header_is_that_of_the_code() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(package.join("cbindgen.toml")).unwrap();
    let mut builder = Builder::new().with_config(config);
    for file in [
        "code",
        "callbacks",
        "participant",
        "tensors",
        "job",
        "constraints",
        "analysis",
        "model",
        "columns/mod",
        "machine",
        "exchange",
    ] {
        builder = builder.with_src(package.join(format!("src/c/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let committed = package.join("include/tributary.h");
    if std::env::var_os("TRIBUTARY_WRITE_HEADER").is_some() {
        std::fs::write(&committed, &made).unwrap();
    }
    let made = String::from_utf8(made).unwrap();
    let header = std::fs::read_to_string(&committed).unwrap_or_default();
    let other = made.lines().zip(header.lines()).find(|(made, held)| made != held);
    assert_eq!(other, None, "include/tributary.h is not what the code makes: see how to write it above");
    assert_eq!(made, header);
}
