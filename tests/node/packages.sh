#!/bin/sh
# Debian's packages that a node needs, unpacked into a folder and not installed: sh packages.sh FOLDER
set -eu
folder=$1
# Library packages carry the version of their ABI in their name: take those that this release's programs depend on.
programs="containerd runc containernetworking-plugins nftables conntrack iptables busybox-static"
[ -e "$folder/.complete" ] && exit 0
rm -rf "$folder" "$folder.deb"
mkdir -p "$folder" "$folder.deb"
cd "$folder.deb"
download() {
    libraries=$(apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances $programs |
        grep -E '^lib(nftables|nftnl|mnl|jansson|netfilter-conntrack|nfnetlink|ip4tc|ip6tc|xtables|seccomp)[0-9]' | sort -u)
    apt-get "$@" -o APT::Sandbox::User=root download $programs $libraries
}
# The machine's own lists may be absent or too old: then new ones go beside the packages.
if ! download; then
    lists="Dir::State::lists=$folder.lists"
    mkdir -p "$folder.lists/partial"
    apt-get -o "$lists" -o APT::Sandbox::User=root update
    download -o "$lists"
    rm -r "$folder.lists"
fi
for package in *.deb; do dpkg -x "$package" "$folder"; done
# Where /usr is merged, the links in / lead there.
for name in bin sbin lib; do
    if [ -d "$folder/$name" ]; then
        mkdir -p "$folder/usr/$name"
        cp -a "$folder/$name/." "$folder/usr/$name/"
        rm -r "${folder:?}/$name"
    fi
done
rm -r "$folder.deb"
touch "$folder/.complete"
