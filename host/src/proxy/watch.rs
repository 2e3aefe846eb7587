//! tbd
use super::*; 
pub(super) fn begins_whole(_:&super::request::Query)->bool{true}
pub(super) async fn watch(_p:&Arc<Proxy>, _r: super::read::Read)->Result<http::Response<super::body::ResponseBody>, super::respond::Refusal>{ Err(super::respond::Refusal::Method)}
