"""Endpoints of tenants: what one has spent under limits for each tenant, and its own bounds."""

import logging

from bylot import api
from bylot.api import MAX_TEXT_CHARS
from bylot.eventlog.commands import GetTenant, ListTenants, SetTenant
from bylot.problem_files.written_limit import read_tenant_limits
from bylot.server.endpoint import ApiRequest, HttpResponse, json_response, route
from bylot.server.http_errors import ApiError
from bylot.server.request_parsing import check_router_name, normalize_label

log = logging.getLogger("bylot.server")


@route("GET /v1/routers/{name}/tenants", "read", 200, api.TenantList)
async def list_tenants(request: ApiRequest[None, api.TenantListQuery]) -> HttpResponse:
    """List tenants by name, page by page: those with own bounds, or that are not archived."""
    after, limit = normalize_label(request.query.after, "tenant") or "", request.query.limit
    name = check_router_name(request.target)
    command = ListTenants(name, after, limit, by=request.caller.id)
    return json_response(200, await request.state.commands.execute(command))


@route("GET /v1/routers/{name}/tenants/{tenant}", "read", 200, api.TenantView, 422)
async def get_tenant(request: ApiRequest[None, None]) -> HttpResponse:
    """What a tenant has spent in the current windows; one that is not known has spent nothing."""
    command = GetTenant(*read_target(request.target), by=request.caller.id)
    return json_response(200, await request.state.commands.execute(command))


@route("PUT /v1/routers/{name}/tenants/{tenant}", "admin", 200, api.TenantView)
async def set_tenant(request: ApiRequest[api.SetTenantRequest, None]) -> HttpResponse:
    """Give a tenant bounds of its own, in place of those that it had; none: those of all apply."""
    name, tenant = read_target(request.target)
    limits = read_tenant_limits(request.body.limits)
    by = request.caller.id
    view = await request.state.commands.execute(SetTenant(name, tenant, limits, by=by))
    log.info("tenant changed", extra={"router": name, "tenant": tenant, "by": by})
    return json_response(200, view)


def read_target(target: str) -> tuple[str, str]:
    """The router and the tenant of a path."""
    name, _, tenant = target.partition("/")
    text = normalize_label(tenant, "tenant") or ""
    if not 0 < len(text) <= MAX_TEXT_CHARS or not text.isprintable():
        message = f"invalid tenant: expected 1 to {MAX_TEXT_CHARS} printable characters"
        raise ApiError(422, "invalid", message, field="tenant")
    return check_router_name(name), text
