//! Parses the modules of a crate: definitions, imports and mentioned names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use proc_macro2::{Spacing, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Lit, Meta, Stmt, Token, UseTree, Visibility};

/// A module without its test code.
pub(super) struct Module {
    /// From the root: empty, `a`, `a::b`.
    pub(super) path: String,
    pub(super) file: PathBuf,
    /// The parent module; `None` for the root.
    pub(super) parent: Option<usize>,
    /// The modules it declares, by name.
    pub(super) children: BTreeMap<String, usize>,
    /// The names of its items.
    pub(super) defines: BTreeSet<String>,
    /// Names that its `use` items bring into scope.
    pub(super) imports: Vec<Import>,
    /// The paths its code names.
    pub(super) mentions: Vec<Mention>,
}

/// One leaf of a `use` tree.
pub(super) struct Import {
    /// The name in scope; `None` for `*`.
    pub(super) name: Option<String>,
    pub(super) mention: Mention,
    /// Whether others may see it (`pub`, `pub(crate)`…).
    pub(super) is_reexport: bool,
}

/// A path in the text.
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    /// From 1.
    pub(super) line: usize,
    /// Whether generated code may use anything below the path, even if it is a module (`#[serde(with = "module")]`).
    pub(super) whole: bool,
}

/// Reads the crate with the root file `root`. The first module is the root.
pub(super) fn modules(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> anyhow::Result<Vec<Module>> {
    let mut reader = Reader { read, modules: Vec::new() };
    let folder = root.parent().ok_or_else(|| anyhow!("{} is in no folder", root.display()))?;
    reader.file(root, folder, String::new(), None)?;
    Ok(reader.modules)
}

struct Reader<'a> {
    read: &'a dyn Fn(&Path) -> Option<String>,
    modules: Vec<Module>,
}

impl Reader<'_> {
    /// Parses a file. The files of its child modules are in `folder`.
    fn file(&mut self, file: &Path, folder: &Path, path: String, parent: Option<usize>) -> anyhow::Result<usize> {
        let text = (self.read)(file).ok_or_else(|| anyhow!("{} is not there", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.module(parsed.items, file, folder, path, parent)
    }

    fn module(
        &mut self,
        items: Vec<Item>,
        file: &Path,
        folder: &Path,
        path: String,
        parent: Option<usize>,
    ) -> anyhow::Result<usize> {
        let me = self.modules.len();
        let mut scan = Scan::default();
        for item in &items {
            scan.visit_item(item);
        }
        let defines = items.iter().filter(|item| !is_test(attributes(item))).filter_map(name).collect();
        let Scan { imports, mentions } = scan;
        let (file, children) = (file.to_owned(), BTreeMap::new());
        self.modules.push(Module {
            path: path.clone(),
            file: file.clone(),
            parent,
            children,
            defines,
            imports,
            mentions,
        });
        for item in items {
            let Item::Mod(child) = item else { continue };
            if is_test(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let path = if path.is_empty() { name.clone() } else { format!("{path}::{name}") };
            let index = self.child(child, &file, folder, path, me)?;
            self.modules[me].children.insert(name, index);
        }
        Ok(me)
    }

    fn child(&mut self, child: ItemMod, file: &Path, folder: &Path, path: String, me: usize) -> anyhow::Result<usize> {
        let name = child.ident.to_string();
        let below = folder.join(&name);
        if let Some((_, items)) = child.content {
            return self.module(items, file, &below, path, Some(me));
        }
        if let Some(elsewhere) = path_attribute(&child.attrs) {
            let beside = file.parent().unwrap_or(folder).join(elsewhere);
            let folder = beside.parent().unwrap_or(folder).to_owned();
            return self.file(&beside, &folder, path, Some(me));
        }
        let candidates = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
        match candidates.iter().find(|file| (self.read)(file).is_some()) {
            Some(file) => self.file(file, &below, path, Some(me)),
            None => bail!("{}: the file of `mod {name}` is not there", file.display()),
        }
    }
}

/// The name an item defines in its module's scope.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|meta| demands_test(&meta))
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    })
}

fn demands_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(demands_test)),
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        let value = &attribute.meta.require_name_value().ok()?.value;
        match value {
            syn::Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        }
    })
}

/// Collects the imports and mentions of one module; child modules are collected separately.
#[derive(Default)]
struct Scan {
    imports: Vec<Import>,
    mentions: Vec<Mention>,
}

impl Scan {
    fn mention(&mut self, path: Vec<String>, span: Span, whole: bool) {
        self.mentions.push(Mention { path, line: span.start().line, whole });
    }

    fn import(&mut self, tree: &UseTree, before: &[String], is_reexport: bool) {
        let longer = |ident: &syn::Ident| before.iter().cloned().chain([ident.to_string()]).collect::<Vec<_>>();
        let (name, path, span) = match tree {
            UseTree::Path(tree) => return self.import(&tree.tree, &longer(&tree.ident), is_reexport),
            UseTree::Group(tree) => return tree.items.iter().for_each(|item| self.import(item, before, is_reexport)),
            UseTree::Name(tree) if tree.ident == "self" => (before.last().cloned(), before.to_vec(), tree.ident.span()),
            UseTree::Name(tree) => (Some(tree.ident.to_string()), longer(&tree.ident), tree.ident.span()),
            UseTree::Rename(tree) if tree.ident == "self" => {
                (Some(tree.rename.to_string()), before.to_vec(), tree.ident.span())
            }
            UseTree::Rename(tree) => (Some(tree.rename.to_string()), longer(&tree.ident), tree.ident.span()),
            UseTree::Glob(tree) => (None, before.to_vec(), tree.star_token.spans[0]),
        };
        let mention = Mention { path, line: span.start().line, whole: false };
        self.imports.push(Import { name, mention, is_reexport });
    }

    /// Paths among the tokens of a macro, which may be arbitrary text.
    fn tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            match &trees[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if at == 0 || !is_point(&trees[at - 1], '.', Spacing::Alone) => {
                    let mut path = vec![first.to_string()];
                    while let Some([colon, again, TokenTree::Ident(next)]) = trees.get(at + 1..at + 4)
                        && is_point(colon, ':', Spacing::Joint)
                        && is_point(again, ':', Spacing::Alone)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    self.mention(path, first.span(), false);
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    /// Paths in the strings of an attribute: `#[serde(default = "path", with = "path")]`.
    fn strings(&mut self, tokens: TokenStream) {
        for tree in tokens {
            match tree {
                TokenTree::Group(group) => self.strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let span = literal.span();
                    if let Lit::Str(text) = Lit::new(literal)
                        && let Ok(path) = text.parse::<syn::Path>()
                    {
                        self.mention(segments(&path), span, true);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

fn is_point(tree: &TokenTree, point: char, spacing: Spacing) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == point && punct.spacing() == spacing)
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

impl<'ast> Visit<'ast> for Scan {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Local(statement) => &statement.attrs,
            Stmt::Macro(statement) => &statement.attrs,
            Stmt::Item(_) | Stmt::Expr(..) => &[],
        };
        if !is_test(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            self.mention(segments(path), first.ident.span(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.strings(list.tokens.clone());
            self.tokens(list.tokens.clone());
        }
    }
}
