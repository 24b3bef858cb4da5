//! How large the libraries in people's apps are, and the package for Python.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use cargo_metadata::MetadataCommand;

/// A library for apps.
struct Variant {
    name: &'static str,
    /// Of `tributary-ffi`.
    features: &'static str,
    panics: Panics,
    /// Most bytes, and most of them compressed by xz.
    limits: (u64, u64),
}

/// Effect of a panic in the library.
#[derive(Clone, Copy)]
enum Panics {
    /// It comes back to the app as an error.
    Unwind,
    /// A panic aborts the app's process, and the library has no unwinding tables.
    Abort,
}

impl Panics {
    fn profile(self) -> &'static str {
        match self {
            Self::Unwind => "mobile",
            Self::Abort => "mobile-abort",
        }
    }

    /// Additional `RUSTFLAGS` for the profile.
    fn flags(self) -> &'static str {
        match self {
            Self::Unwind => "",
            Self::Abort => "-Cforce-unwind-tables=no",
        }
    }
}

const MB: u64 = 1_000_000;

const VARIANTS: &[Variant] = &[
    variant("C, own training and HTTP client; a panic aborts", "", Panics::Abort, 3),
    variant("C, own training and HTTP client", "", Panics::Unwind, 3),
    variant("C, own training; a panic aborts", "https", Panics::Abort, 3),
    variant("C, own training", "https", Panics::Unwind, 3),
    variant("C, Kotlin and Swift, own training", "https,uniffi", Panics::Unwind, 3),
    variant("C, Kotlin and Swift, ready models", "https,uniffi,models", Panics::Unwind, 8),
];

/// Maximum size of the compressed Python wheel, in bytes.
const WHEEL: u64 = 10 * MB;

/// A library of at most so many megabytes, and 3 compressed.
const fn variant(name: &'static str, features: &'static str, panics: Panics, megabytes: u64) -> Variant {
    Variant { name, features, panics, limits: (megabytes * MB, 3 * MB) }
}

/// Builds each library in its profile, and the wheel as it is released, and compares them with their limits. Another target is linked by
/// zig.
pub(crate) fn run(target: Option<&str>) -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let folder = metadata.target_directory.as_std_path().join(match target {
        Some(target) => target.to_owned(),
        None => host()?,
    });
    let mut large = 0;
    for Variant { name, features, panics, limits } in VARIANTS {
        build(target, features, *panics)?;
        let library = folder.join(panics.profile()).join("libtributary_ffi.so");
        let size = std::fs::metadata(&library).with_context(|| library.display().to_string())?.len();
        let xz = compressed(&library)?;
        let is_large = size > limits.0 || xz > limits.1;
        let said = if is_large { ": too large" } else { "" };
        println!("{:>9} bytes (limit {}), {:>9} by xz (limit {})  {name}{said}", size, limits.0, xz, limits.1);
        large += usize::from(is_large);
    }
    if let Some(size) = wheel(target, &metadata.target_directory.as_std_path().join("wheel-size"))? {
        let said = if size > WHEEL { ": too large" } else { "" };
        println!("{size:>9} bytes (limit {WHEEL})  the wheel for Python{said}");
        large += usize::from(size > WHEEL);
    }
    if large > 0 {
        bail!("{large} of them are too large");
    }
    Ok(())
}

/// The target of this machine.
fn host() -> anyhow::Result<String> {
    let told = Command::new("rustc").args(["--print", "host-tuple"]).output().context("rustc")?;
    Ok(String::from_utf8(told.stdout)?.trim().to_owned())
}

fn build(target: Option<&str>, features: &str, panics: Panics) -> anyhow::Result<()> {
    let mut cargo = match target {
        Some(target) => {
            let mut cargo = Command::new("cargo-zigbuild");
            cargo.args(["zigbuild", "--target", target]);
            cargo
        }
        None => {
            let mut cargo = Command::new("cargo");
            // Named explicitly, so that the flags do not apply to build scripts, which unwind.
            cargo.args(["build", "--target", "host-tuple"]);
            cargo
        }
    };
    cargo.args(["--locked", "--quiet", "--profile", panics.profile(), "--package", "tributary-ffi", "--lib"]);
    cargo.args(["--no-default-features", "--features", features]).env("RUSTFLAGS", panics.flags());
    if !cargo.status().context("cargo; cargo-zigbuild comes from PyPI, with ziglang")?.success() {
        bail!("the library with the features {features:?} cannot be built");
    }
    Ok(())
}

/// Builds the wheel into this folder, which is emptied first, and returns its size. Without maturin, prints a message and returns `None`.
fn wheel(target: Option<&str>, folder: &Path) -> anyhow::Result<Option<u64>> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(folder.display().to_string()),
        _ => {}
    }
    let mut maturin = Command::new("maturin");
    maturin.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--manifest-path",
        "client-sdk/python/Cargo.toml",
        "--out",
    ]);
    maturin.arg(folder);
    if let Some(target) = target {
        maturin.args(["--zig", "--target", target]);
    }
    match maturin.status() {
        Ok(status) if status.success() => {}
        Ok(_) => bail!("the wheel for Python cannot be built"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: the wheel for Python, since maturin is not installed; it comes from PyPI");
            return Ok(None);
        }
        Err(error) => return Err(error).context("maturin"),
    }
    let made = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?.next();
    let made = made.context("maturin made no wheel")??;
    Ok(Some(made.metadata()?.len()))
}

/// The download size.
fn compressed(library: &Path) -> anyhow::Result<u64> {
    let xz = Command::new("xz").args(["-9", "--stdout"]).arg(library).stdout(Stdio::piped()).output().context("xz")?;
    Ok(xz.stdout.len() as u64)
}
