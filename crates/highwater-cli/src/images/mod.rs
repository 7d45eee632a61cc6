//! Folders of images, looked over before a run: shared by the models that classify them and the data that is made of
//! them.

pub(crate) mod loading;
mod survey;

pub(crate) use survey::Survey;
pub(crate) use survey::{LISTED, Seen};
