//! `#[derive(Module)]`: shows every field of a struct to a visitor.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, Index, parse_macro_input};

/// Derives `highwater::nn::Module`: each field is visited under its name, except those marked
/// `#[module(skip)]`. `#[module(rename = "h.0")]` visits a field under another name.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "Module can be derived for structs; implement it by hand for other types";
        return Err(syn::Error::new_spanned(input, message));
    };
    let fields = match &data.fields {
        Fields::Named(fields) => fields.named.iter().collect(),
        Fields::Unnamed(fields) => fields.unnamed.iter().collect(),
        Fields::Unit => Vec::new(),
    };
    let mut visits = Vec::new();
    for (i, field) in fields.into_iter().enumerate() {
        let options = options(field)?;
        if options.skip {
            continue;
        }
        let (member, name) = if let Some(ident) = &field.ident {
            (quote!(#ident), ident.to_string())
        } else {
            let index = Index::from(i);
            (quote!(#index), i.to_string())
        };
        let name = options.rename.unwrap_or(name);
        visits.push(quote! {
            highwater::nn::Module::visit(
                &self.#member,
                &highwater::nn::join(path, #name),
                visitor,
            );
        });
    }
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics highwater::nn::Module for #name #type_generics #where_clause {
            fn visit(&self, path: &str, visitor: &mut dyn highwater::nn::Visitor) {
                let _ = (path, &visitor);
                #(#visits)*
            }
        }
    })
}

#[derive(Default)]
struct Options {
    skip: bool,
    rename: Option<String>,
}

fn options(field: &syn::Field) -> syn::Result<Options> {
    let mut options = Options::default();
    for attribute in field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("module"))
    {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                options.skip = true;
                Ok(())
            } else if meta.path.is_ident("rename") {
                options.rename = Some(meta.value()?.parse::<syn::LitStr>()?.value());
                Ok(())
            } else {
                Err(meta.error("expected `skip` or `rename = \"..\"`"))
            }
        })?;
    }
    Ok(options)
}
