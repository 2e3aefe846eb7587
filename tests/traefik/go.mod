module weir.dev/tests/traefik

go 1.24.0

require github.com/traefik/traefik/v3 v3.5.0
