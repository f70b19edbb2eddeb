//! Signatures: AWS's own code, on our requests.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign as sign_v4};
use aws_sigv4::sign::v4;

use crate::credentials::with_sources;

/// Adds the headers of a signature (Version 4) to a request, which must not change afterwards.
pub(crate) fn sign<B: AsRef<[u8]>>(
    request: &mut http::Request<B>,
    credentials: &Credentials,
    service: &str,
    region: &str,
    time: SystemTime,
) -> Result<(), String> {
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(time)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| with_sources(&error))?
        .into();
    let headers = request.headers().iter();
    let signable = SignableRequest::new(
        request.method().as_str(),
        request.uri().to_string(),
        headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))),
        SignableBody::Bytes(request.body().as_ref()),
    )
    .map_err(|error| with_sources(&error))?;
    let signed = sign_v4(signable, &parameters).map_err(|error| with_sources(&error))?;
    signed.into_parts().0.apply_to_request_http1x(request);
    Ok(())
}

#[cfg(test)]
mod tests;
