//! tbd
use super::*; 
#[derive(Debug,Default)] pub(super) struct Failed;
pub(super) async fn list(_p:&Arc<Proxy>, _r: super::read::Read)->Result<http::Response<super::body::ResponseBody>, super::respond::Refusal>{ Err(super::respond::Refusal::Method)}
